"""kazoo's connection to ZooKeeper, as one that outlives any answer.

kazoo takes an answer that it does not expect for the end: its thread dies, and its client never connects again. Here
such an answer costs the connection, and what waits on it fails as after any other loss.
"""

from __future__ import annotations

import struct

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import ReplyHeader

_NONSENSE = (struct.error, ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class KazooConnection(ConnectionHandler):
    """Installs itself as the ``client``'s, which must not have been started."""

    def __init__(self, client: KazooClient) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)  # noqa: SLF001
        client._connection = self  # noqa: SLF001

    def _read_socket(self, read_timeout: float) -> object:
        try:
            return super()._read_socket(read_timeout)
        except _NONSENSE as error:
            raise ConnectionDropped(f"an answer that makes no sense: {error!r}") from error

    def _read_response(self, header: ReplyHeader, buffer: bytes, offset: int) -> object:
        pending = self.client._pending  # noqa: SLF001
        if pending and pending[0][2] == header.xid and header.err in EXCEPTIONS:
            return super()._read_response(header, buffer, offset)
        # A server refuses what it does not know at once, before it has answered what was asked earlier, and closes the
        # connection. The refusal is told: whoever asks the same again would lose the next connection as well.
        for waiting in [each for each in pending if each[2] == header.xid and header.err in EXCEPTIONS]:
            pending.remove(waiting)
            waiting[1].set_exception(EXCEPTIONS[header.err]())
        raise ConnectionDropped(f"an answer out of turn or of an unknown error: {header.xid}, {header.err}")
