"""New connections on their way to a Processor: from the thread that accepted them until they are served."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from broker.network.connection import Connection
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.logins import begin_login
from broker.network.request_channel import ConnectionInfo
from broker.network.request_memory import RequestMemory
from broker.network.sasl import SaslListeners
from broker.network.transport import Transport

_MOST_ARRIVALS = 64  # per turn: each takes about 20 µs


class NewConnections:
    """The new connections of one Processor; Kafka's ``Processor.newConnections``.

    Any thread may append to ``waiting``. Everything else is for the Processor's thread.
    """

    def __init__(
        self,
        quotas: ConnectionQuotas,
        memory: RequestMemory,
        sasl: SaslListeners | None,
        max_frame_bytes: int,
    ) -> None:
        self._quotas = quotas
        self._memory = memory
        self._sasl = sasl
        self._max_frame_bytes = max_frame_bytes
        self.waiting: deque[tuple[Transport, ConnectionInfo]] = deque()

    def admitted(self, now_ms: int) -> Iterator[Connection]:
        """Takes at most one turn's number of them, and yields those that may be served."""
        for _ in range(min(len(self.waiting), _MOST_ARRIVALS)):
            transport, info = self.waiting.popleft()
            if not self._quotas.protects(info.listener_name):
                info.memory = self._memory
            connection = Connection(transport, info, self._max_frame_bytes, now_ms, info.memory)
            if self._sasl is not None and info.listener_name in self._sasl.offers:
                login = self._sasl.open(info, now_ms)
                if login is None:
                    connection.leave()
                    self._quotas.remove(info.client_address, info.listener_name)
                    continue
                begin_login(connection, login)
            yield connection

    def close(self) -> None:
        """Closes those that still wait, when the Processor ends."""
        for transport, info in self.waiting:
            transport.close()
            self._quotas.remove(info.client_address, info.listener_name)
