"""kazoo's connection to ZooKeeper, made robust against unexpected answers.

An answer that kazoo does not expect ends its thread, and the client never connects again. Here such an answer
only closes the connection, and waiting requests fail as after any other connection loss.
"""

from __future__ import annotations

import struct

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, ReplyHeader

_UNFINISHED = (
    "its log-in by SASL has no end: check that the server has a JAAS file and SASLAuthenticationProvider"
)
# DIGEST-MD5 takes two. A server without SASL answers each with an empty one, which kazoo answers too.
_MOST_TOKENS = 4
_NONSENSE = (struct.error, ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class KazooConnection(ConnectionHandler):
    """The connection of a kazoo client. It installs itself in ``client``, which must not have
    been started. ``sasl`` is the user and the password of SASL DIGEST-MD5. ``no_log_in`` says what is
    wrong while the server does not let this client log in.
    """

    def __init__(self, client: KazooClient, sasl: tuple[str, str] | None = None) -> None:
        options = (
            None if sasl is None else {"mechanism": "DIGEST-MD5", "username": sasl[0], "password": sasl[1]}
        )
        super().__init__(
            client,
            client._conn_retry.copy(),  # noqa: SLF001
            logger=client.logger,
            sasl_options=options,
        )
        client._connection = self  # noqa: SLF001
        self._logged_in = False
        self.no_log_in = ""

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """Kazoo skips a name that does not resolve. Any other error would end its thread, as one for want of a free
        file descriptor.
        """
        try:
            return super()._expand_client_hosts()
        except OSError as error:
            self.logger.warning("Cannot look up names: %s", error)
            return []

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Kazoo takes a server that is lost during the log-in for a wrong password, and gives up for ever. Once
        the password was right, it is only a lost connection.
        """
        try:
            super()._authenticate_with_sasl(host, timeout)
        except (AuthFailedError, *_NONSENSE) as error:
            if isinstance(error, AuthFailedError) and not self._logged_in:
                raise
            raise ConnectionDropped(f"no log-in by SASL: {error!r}") from error
        self._logged_in, self.no_log_in = True, ""

    def _submit(self, request: object, timeout: float, xid: int | None = None) -> None:
        if isinstance(request, SASL) and xid is not None and xid > _MOST_TOKENS:
            self.no_log_in = _UNFINISHED
            raise ConnectionDropped(_UNFINISHED)
        super()._submit(request, timeout, xid)

    def _read_socket(self, read_timeout: float) -> object:
        try:
            return super()._read_socket(read_timeout)
        except _NONSENSE as error:
            raise ConnectionDropped(f"an answer that makes no sense: {error!r}") from error

    def _read_response(self, header: ReplyHeader, buffer: bytes, offset: int) -> object:
        pending = self.client._pending  # noqa: SLF001
        if pending and pending[0][2] == header.xid and header.err in EXCEPTIONS:
            return super()._read_response(header, buffer, offset)
        # A server refuses an unknown request at once, before it has answered earlier ones, and closes the
        # connection. The request fails with this refusal: if it were retried, the next connection would be
        # lost as well.
        for waiting in [each for each in pending if each[2] == header.xid and header.err in EXCEPTIONS]:
            pending.remove(waiting)
            waiting[1].set_exception(EXCEPTIONS[header.err]())
        raise ConnectionDropped(f"an answer out of turn or of an unknown error: {header.xid}, {header.err}")
