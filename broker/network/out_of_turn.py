"""The connections that a Processor serves after a turn's events: expensive ones, and those in the crowd.

:mod:`.shares` and :mod:`.crowd` decide who belongs here and in which order. The Processor serves a connection
whose turn it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from broker.network.connection import OUT_OF_TURN, Connection
from broker.network.crowd import CROWD_NS, Crowd
from broker.network.shares import DEAR_NS, DEAR_TURN_NS, VISIT_NS, asked_after, cost_after

# Connections of the crowd whose responses are sent in a row.
_BURST: Final = 16


class OutOfTurn:
    """The waiting connections of one Processor, used on its thread only.

    ``dear`` has the expensive ones in order, with their epoll events. ``crowded`` has the members of the crowd
    and is read-only. Both are public because testing a dict for emptiness costs a tenth of a method call.

    ``serve`` handles a connection's epoll events. ``go_on`` continues one that was muted for a cause. ``flush``
    sends its responses, ``watch`` sets its epoll events, and ``settle`` sends the responses of all others.
    """

    def __init__(
        self,
        *,
        serve: Callable[[Connection, int, int], None],
        go_on: Callable[[Connection, int], None],
        flush: Callable[[Connection], None],
        watch: Callable[[Connection], None],
        settle: Callable[[], None],
    ) -> None:
        self._serve = serve
        self._go_on = go_on
        self._flush = flush
        self._watch = watch
        self._settle = settle
        self.dear: dict[Connection, int] = {}
        self.crowd: Crowd[Connection] = Crowd()
        self.crowded = self.crowd.members
        self._visit_ended_ns = 0  # the thread's CPU time; 0 unless visits follow each other

    def serve_crowd(self, now_ms: int) -> None:
        """Serves some of the waiting connections: by demand, then by turn. Their responses are sent soon, in bursts,
        and count towards the time that a turn may use.
        """
        for by_demand in (True, False):
            until_ns = time.monotonic_ns() + CROWD_NS
            while self.crowded:
                self._serve_burst(by_demand, now_ms, until_ns)
                if time.monotonic_ns() >= until_ns:
                    break

    def _serve_burst(self, by_demand: bool, now_ms: int, until_ns: int) -> None:
        """Serves a few, then sends their responses: a client that has slept is woken once for all of them, which takes
        as long as a small request. Responses with records are sent at once, as each takes long.
        """
        crowd, burst = self.crowd, list[Connection]()
        self._visit_ended_ns = time.thread_time_ns()
        try:
            while self.crowded and len(burst) < _BURST:
                connection, mask = crowd.least() if by_demand else crowd.next()
                began_ns = self._visit_ended_ns
                self._serve_one(connection, mask, now_ms)
                if self._visit_ended_ns == began_ns:
                    # It was closed, or had nothing whole: not for the next one to pay.
                    self._visit_ended_ns = time.thread_time_ns()
                burst.append(connection)
                if connection.has_long_answer() or time.monotonic_ns() >= until_ns:
                    break
        finally:
            self._visit_ended_ns = 0
        for connection in burst:
            if connection.fd >= 0 and connection.dirty:
                connection.dirty = False
                self._flush(connection)
            if connection.fd >= 0:
                self._watch(connection)

    def serve_dear(self, now_ms: int) -> None:
        """Serves expensive connections one after another until their share of the turn is used up. The rest
        keep their places. Responses of the other connections are sent first.
        """
        self._settle()
        until_ns = time.monotonic_ns() + DEAR_TURN_NS
        for _ in range(len(self.dear)):
            connection = next(iter(self.dear))
            self._serve_one(connection, self.dear.pop(connection), now_ms)
            if time.monotonic_ns() >= until_ns:
                return

    def _serve_one(self, connection: Connection, mask: int, now_ms: int) -> None:
        if connection.fd >= 0 and mask:
            self._serve(connection, mask, now_ms)
        waits_again = connection in self.dear or connection in self.crowded
        if connection.fd >= 0 and connection.muted & OUT_OF_TURN and not waits_again:
            self._go_on(connection, OUT_OF_TURN)

    def look_at(self, connection: Connection, spent_ns: int) -> None:
        """Handles a visit that takes long: starts measuring the cost of the next ones, and ends it when its
        share is used up.
        """
        if not connection.cost_ns:
            connection.cost_ns = DEAR_NS
        if spent_ns > VISIT_NS:
            self.put_off(connection, in_crowd=bool(self.crowded) and connection.cost_ns <= DEAR_NS)

    def put_off(self, connection: Connection, *, in_crowd: bool = False) -> None:
        """Continues the connection later, among the expensive ones or in the crowd, whether
        answered or not.
        """
        if in_crowd:
            self.crowd.add(connection, 0, time.monotonic_ns())
        else:
            self.dear.setdefault(connection, 0)
        connection.muted |= OUT_OF_TURN
        self._watch(connection)

    def visit_began_ns(self) -> int:
        """The thread's CPU time at the beginning of a visit: when the last one ended if they follow each other, because
        reading it takes the kernel half a microsecond. The receive counts too then.
        """
        return self._visit_ended_ns or time.thread_time_ns()

    def forget(self, connection: Connection) -> None:
        """Called when the connection is closed."""
        self.dear.pop(connection, None)
        self.crowd.remove(connection)

    def note_cost(self, connection: Connection, cpu_ns: int, spent_ns: int) -> None:
        """Records what a visit cost. ``cpu_ns``: what :meth:`visit_began_ns` returned, 0 if not measured; ``spent_ns``:
        wall-clock time on a complete request, 0 without one.
        """
        if not cpu_ns:  # wall-clock time may include the work of other threads
            connection.asked_ns = spent_ns
            return
        now_ns = time.thread_time_ns()
        used_ns = now_ns - cpu_ns
        if self._visit_ended_ns:
            self._visit_ended_ns = now_ns
        connection.cost_ns = cost_after(connection.cost_ns, used_ns)
        if spent_ns:
            connection.asked_ns = asked_after(connection.asked_ns, used_ns)
