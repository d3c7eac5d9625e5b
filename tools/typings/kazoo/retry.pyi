from typing import Self

class KazooRetry:
    def __init__(
        self,
        max_tries: int = ...,
        delay: float = ...,
        backoff: float = ...,
        max_jitter: float = ...,
        max_delay: float = ...,
    ) -> None: ...
    def copy(self) -> Self: ...
