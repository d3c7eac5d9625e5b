from collections.abc import Sequence

class Create:
    def __init__(self, path: str, data: bytes | None, acl: Sequence[object], flags: int) -> None: ...
