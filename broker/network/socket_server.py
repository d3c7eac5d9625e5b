"""SocketServer: listeners bound early, N Processors, one Acceptor per listener; connections are accepted only
on request.

Kafka binds last, and notices that a port is in use after it has registered and perhaps become controller.
Here the ports are bound first, and nothing is accepted until :meth:`SocketServer.start`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from broker.config.endpoint import Endpoint
from broker.network.acceptor import Acceptor
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.guests import Guest
from broker.network.processor import Processor
from broker.network.request_channel import Dispatch
from broker.network.request_memory import RequestMemory
from broker.network.request_times import total_times
from broker.network.sasl import LoginStats, SaslListeners
from broker.network.slow_readers import DELETED_FILE_MS
from broker.network.transport import Security


class SocketServer:
    """The broker's network layer; Kafka's SocketServer. :meth:`bind` raises
    :class:`broker.network.acceptor.BindError`. Start and stop once each.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        num_processors: int,
        max_frame_bytes: int,
        idle_ms: int,
        send_buffer: int,
        receive_buffer: int,
        backlog: int,
        quotas: ConnectionQuotas,
        max_request_memory: int = -1,
        deleted_file_ms: int = DELETED_FILE_MS,
        security: Security | None = None,
    ) -> None:
        self._security = security
        self._endpoints = endpoints
        self._num_processors = num_processors
        self._max_frame_bytes = max_frame_bytes
        self._idle_ms = idle_ms
        self._deleted_file_ms = deleted_file_ms
        self._buffers = (send_buffer, receive_buffer)
        self._backlog = backlog
        self.quotas = quotas
        self.memory = RequestMemory(max_request_memory)
        self._acceptors: list[Acceptor] = []
        self._processors: list[Processor] = []
        self._started_ns = 0
        self.logins = LoginStats()
        self._sasl: SaslListeners | None = None

    @property
    def bound_ports(self) -> Mapping[str, int]:
        """Listener name to bound port."""
        return {acceptor.endpoint.listener_name: acceptor.port for acceptor in self._acceptors}

    @property
    def connection_count(self) -> int:
        return sum(processor.connection_count for processor in self._processors)

    def bind(self) -> None:
        """Binds all listeners, or none of them."""
        send, receive = self._buffers
        try:
            for endpoint in self._endpoints:
                self._acceptors.append(
                    Acceptor(
                        endpoint,
                        send_buffer=send,
                        receive_buffer=receive,
                        backlog=self._backlog,
                        security=self._security_of(endpoint),
                    )
                )
        except Exception:
            self.stop()
            raise

    def _security_of(self, endpoint: Endpoint) -> Security | None:
        security = self._security
        return security if security is not None and security.covers(endpoint.listener_name) else None

    def start(
        self,
        dispatch: Dispatch,
        settle: Callable[[], bool] = lambda: False,
        sasl: SaslListeners | None = None,
    ) -> None:
        """Starts the Processors, then accepts connections. ``sasl`` is what the SASL listeners offer."""
        self._started_ns = time.monotonic_ns()
        if sasl is not None:
            self.logins = sasl.stats
            self._sasl = sasl
        for index in range(self._num_processors):
            processor = Processor(
                index,
                dispatch,
                settle,
                max_frame_bytes=self._max_frame_bytes,
                idle_ms=self._idle_ms,
                quotas=self.quotas,
                memory=self.memory,
                deleted_file_ms=self._deleted_file_ms,
                sasl=sasl,
            )
            self._processors.append(processor)
            processor.start()
        if self._security is not None:
            self._security.start()
        for acceptor in self._acceptors:
            acceptor.start(self._processors, self.quotas)

    def stop(self) -> None:
        """Stops accepting and closes every connection. Harmless if it never started."""
        for acceptor in self._acceptors:
            acceptor.stop()
        if self._security is not None:
            self._security.stop()
        if self._sasl is not None:
            self._sasl.stop()
        for processor in self._processors:
            processor.stop()

    def invite(self, guest: Guest) -> bool:
        """Makes the Processor with the fewest guests serve ``guest``; False when none runs."""
        if not self._processors:
            return False
        min(self._processors, key=lambda processor: processor.guest_count).invite(guest)
        return True

    def slowest_loop_ms(self) -> int:
        """Milliseconds since the last loop iteration of the Processor that is furthest behind; for
        the watchdog.
        """
        now = time.monotonic_ns()
        return (
            max((now - processor.loop_ns) // 1_000_000 for processor in self._processors)
            if self._processors
            else 0
        )

    def total_times(self) -> dict[int, tuple[list[tuple[str, float]], float]]:
        """Request durations by API key, as histograms in milliseconds."""
        return total_times(processor.times for processor in self._processors)

    def avg_idle_percent(self) -> float:
        """Kafka's NetworkProcessorAvgIdlePercent, 0 to 1, since the start."""
        if not self._processors:
            return 1.0
        elapsed = time.monotonic_ns() - self._started_ns
        return (
            sum(processor.idle_ns for processor in self._processors) / len(self._processors) / max(elapsed, 1)
        )
