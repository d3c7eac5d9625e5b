"""Closes connections for inactivity: idle ones, unfinished requests while memory is short, responses that are
not read.

All connections are checked once a second, some in each turn: checking ten thousand takes 10 ms, closing them
a second. Connections closed for being idle are logged in one line per sweep.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import structlog

from broker.network.connection import THROTTLED, Connection
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_memory import LONGEST_FRAME_MS, LONGEST_OWED_MS, RequestMemory
from broker.network.shares import DEAR_NS, DearAddresses
from broker.network.slow_readers import holds_deleted_file
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
MOST_LOOKED_AT: Final = 500
MOST_CLOSED: Final = 100
_EVERY_MS: Final = 1_000
_BUFFER_IDLE_MS: Final = 5_000


class Sweep:
    """The periodic check of one Processor's connections, on its thread. ``due_ms``: when to continue; 0:
    at once.
    """

    def __init__(
        self, idle_ms: int, deleted_file_ms: int, memory: RequestMemory, dear_addresses: DearAddresses
    ) -> None:
        self.due_ms = 0
        self._idle_ms = idle_ms
        self._deleted_file_ms = deleted_file_ms
        self._memory = memory
        self._dear_addresses = dear_addresses
        self._left: list[Connection] = []
        self._idle_count = self._longest_idle_ms = 0
        self._idle_peer = ""

    def to_close(self, connections: Collection[Connection], now_ms: int) -> Iterator[Connection]:
        """Continues or restarts the sweep; yields the connections of this turn that are to be closed."""
        if self.due_ms:
            self._left = list(connections)
            self._left.reverse()
            self.due_ms = 0
            self._dear_addresses.forget_old(now_ms)
        closed = 0
        for _ in range(min(len(self._left), MOST_LOOKED_AT)):
            connection = self._left.pop()
            if connection.fd >= 0 and self._is_to_be_closed(connection, now_ms):
                yield connection
                closed += 1
                if closed == MOST_CLOSED:
                    break
        if not self._left:
            self.due_ms = now_ms + _EVERY_MS
            self._tell_idle()

    def _is_to_be_closed(self, connection: Connection, now_ms: int) -> bool:
        if connection.cost_ns > DEAR_NS:
            self._dear_addresses.add(connection.info.client_address, now_ms)
        idle_ms = now_ms - connection.last_active_ms
        if connection.buffer is not None and (idle_ms > _BUFFER_IDLE_MS or connection.memory.over):
            connection.release_idle_buffer()
        if connection.memory.over and self._is_overdue(connection, now_ms):
            log_refusal(
                "unfinished_request_dropped",
                connection.info.client_address,
                f"queued.max.request.bytes={self._memory.limit} is used up, and this one has not come to its end",
                bytes=connection.filled,
            )
            return True
        if connection.login is not None and connection.login.is_overdue(now_ms):
            return True
        if holds_deleted_file(connection, now_ms, self._deleted_file_ms):
            return True
        if 0 <= self._idle_ms < idle_ms and not connection.in_flight:
            if not self._idle_count:
                self._idle_peer = connection.info.client_address
            self._idle_count += 1
            self._longest_idle_ms = max(self._longest_idle_ms, idle_ms)
            return True
        return False

    def _is_overdue(self, connection: Connection, now_ms: int) -> bool:
        """Whether an incomplete frame is overdue; never while kept requests alone use up the budget.

        A connection that waits for a response, or is throttled, gets more time. The extra time is limited,
        because it may have requested something that never comes. A connection with unread responses gets no
        extra time, whatever else it has requested.
        """
        if not connection.begun_ms or connection.memory.keeps_too_much:
            return False
        waits = connection.in_flight or connection.muted & THROTTLED
        owed = connection.muted and waits and not connection.out
        return connection.begun_ms < now_ms - (LONGEST_OWED_MS if owed else LONGEST_FRAME_MS)

    def _tell_idle(self) -> None:
        if self._idle_count:
            _log.info(
                "idle_connection_closed",
                peer=self._idle_peer,
                count=self._idle_count,
                idle_ms=self._longest_idle_ms,
                setting="connections.max.idle.ms",
            )
            self._idle_count = self._longest_idle_ms = 0


def in_the_way(connections: Collection[Connection], quotas: ConnectionQuotas) -> Iterator[Connection]:
    """Yields the connections to close, and logs each, while ``max.connections`` is exceeded: the longest
    unused ones that are not on the protected listener.
    """
    clients = (each for each in connections if not quotas.protects(each.info.listener_name))
    for connection in least_needed(clients, min(quotas.excess, MOST_CLOSED)):
        if quotas.excess <= 0:
            return  # another Processor was first
        log_refusal(
            "connection_closed_for_a_broker",
            connection.info.client_address,
            f"max.connections={quotas.limits.max_connections} is passed, and it was the longest unused",
            listener=connection.info.listener_name,
            action="raise max.connections, or lower max.connections.per.ip",
        )
        yield connection


def least_needed(connections: Iterable[Connection], count: int) -> list[Connection]:
    """Connections that wait for no response first, then those whose last request is the oldest."""
    return heapq.nsmallest(
        count, connections, key=lambda connection: (bool(connection.in_flight), connection.last_active_ms)
    )
