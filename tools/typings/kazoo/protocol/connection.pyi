import logging

from kazoo.client import KazooClient
from kazoo.protocol.serialization import ReplyHeader
from kazoo.retry import KazooRetry

class ConnectionHandler:
    client: KazooClient
    logger: logging.Logger
    def __init__(
        self,
        client: KazooClient,
        retry_sleeper: KazooRetry,
        logger: logging.Logger | None = ...,
        sasl_options: dict[str, str] | None = ...,
    ) -> None: ...
    def _expand_client_hosts(self) -> list[tuple[str, str, int]]: ...
    def _authenticate_with_sasl(self, host: str, timeout: float) -> None: ...
    def _submit(self, request: object, timeout: float, xid: int | None = None) -> None: ...
    def _read_socket(self, read_timeout: float) -> object: ...
    def _read_response(self, header: ReplyHeader, buffer: bytes, offset: int) -> object: ...
