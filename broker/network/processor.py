"""A Processor: one thread, one epoll, its share of the connections. Kafka's SocketServer.Processor.

It reads requests, passes each to ``dispatch`` on its own thread, and writes responses in order.
``dispatch`` completes quick requests and queues those that may block. A queued request mutes its connection
until it is answered, so that a connection's requests take effect in order. Responses from other threads
arrive through a queue and an eventfd. Expensive ("dear") connections come last in a turn and share a fixed
part of it (:mod:`.shares`, ADR 29). When there are too many connections for one turn, those with low demand
come first (:mod:`.crowd`). Both wait in :mod:`.out_of_turn`.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from broker.network.connection import OUT_OF_TURN, PIPELINED, THROTTLED, UNANSWERED, Connection
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.crowd import TURN_NS
from broker.network.cut_off import tell_if_cut_off
from broker.network.guests import Guest, Guests
from broker.network.logins import took_frame
from broker.network.new_connections import NewConnections
from broker.network.out_of_turn import OutOfTurn
from broker.network.request_channel import ConnectionInfo, Dispatch, Request, Verdict
from broker.network.request_memory import Rations, RequestMemory
from broker.network.request_times import RequestTimes
from broker.network.sasl import SaslListeners
from broker.network.shares import DEAR_NS, DearAddresses
from broker.network.slow_readers import DELETED_FILE_MS
from broker.network.stalled import StalledRequests
from broker.network.sweep import Sweep, in_the_way
from broker.network.throttled import Throttled
from broker.network.transport import Transport
from broker.network.wake_up import WakeUp
from broker.network.watching import ENDS, GONE, HALF_CLOSED, IN, IN_ONCE, IN_OR_GONE, OUT, events_of
from broker.protocol.errors import ProtocolError
from broker.protocol.framing import split_request_header
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_SHARED_BUFFER: Final = 256 * 1024
_TICK_S: Final = 1.0
_RETRY_S: Final = 0.005
_TICK_NS: Final = 1_000_000_000
_FEW: Final = 4  # up to this many need no time check: each has its own limit
# Looked up here once: a look-up in an enum takes 50 ns.
_SERVED: Final = Verdict.SERVED


class Processor:
    """A network thread with its share of the connections; Kafka's SocketServer.Processor.

    Only its thread touches a connection. Everything runs on that thread except :meth:`adopt`, :meth:`invite`,
    :meth:`stop` and the completion of requests. ``dispatch`` must neither raise nor block. ``settle`` is
    called after each turn's events, for work that they deferred; if it returns True, again when the answers are sent.
    """

    def __init__(
        self,
        index: int,
        dispatch: Dispatch,
        settle: Callable[[], bool],
        *,
        max_frame_bytes: int,
        idle_ms: int,
        quotas: ConnectionQuotas,
        memory: RequestMemory | None = None,
        deleted_file_ms: int = DELETED_FILE_MS,
        sasl: SaslListeners | None = None,
    ) -> None:
        self.index = index
        self.loop_ns = time.monotonic_ns()  # last iteration of the loop, for the watchdog
        self.idle_ns = 0  # time spent waiting, for NetworkProcessorAvgIdlePercent
        self.times = RequestTimes()
        self._dispatch = dispatch
        self._settle = settle
        self._max_frame_bytes = max_frame_bytes
        self._quotas = quotas
        self._epoll = select.epoll()
        self._wake_up = WakeUp(self._epoll)
        self._wake = self._wake_up.wake
        self._shared = bytearray(_SHARED_BUFFER)
        self._connections: dict[int, Connection] = {}
        self._guests = Guests(self._epoll)
        self._visits = self._guests.visits
        self._invited = self._guests.invited
        self._answered: deque[Connection] = deque()
        self._stalled_requests = StalledRequests()
        self._stalled = self._stalled_requests.waiting
        self._out_of_turn = OutOfTurn(
            serve=self._serve,
            go_on=self._go_on,
            flush=self._flush,
            watch=self._watch,
            settle=self._settle_and_flush,
        )
        self._dear = self._out_of_turn.dear
        self._crowd = self._out_of_turn.crowd
        self._waiting = self._out_of_turn.crowded
        self._dear_addresses = DearAddresses()
        self._memory = memory or RequestMemory()
        self._new_connections = NewConnections(quotas, self._memory, sasl, max_frame_bytes)
        self._arrived = self._new_connections.waiting
        self._rations: Rations[Connection] = Rations(self._memory)
        self._starved = self._rations.waiting
        self._throttled: Throttled[Connection] = Throttled()
        self._stopping = self._ended = self._unsettled = False
        self._sweep = Sweep(idle_ms, deleted_file_ms, self._memory, self._dear_addresses)
        self._sweep_ms = self._thread_id = 0
        self._late = False  # a flush takes long: further requests wait for the next turn
        self._went_on = False  # a connection continued with waiting requests after its responses were sent
        self._own_thread = threading.Thread(target=self._run, name=f"network-thread-{index}", daemon=True)

    def __repr__(self) -> str:
        return f"<Processor {self.index} with {len(self._connections)} connections>"

    @property
    def connection_count(self) -> int:
        return len(self._connections) + len(self._arrived)

    @property
    def guest_count(self) -> int:
        return len(self._visits) + len(self._invited)

    def start(self) -> None:
        self._own_thread.start()

    def adopt(self, transport: Transport, info: ConnectionInfo) -> None:
        """Takes over an accepted connection. Called on the thread that accepted it or shook hands."""
        self._arrived.append((transport, info))
        self._wake()

    def invite(self, guest: Guest) -> None:
        """Serves ``guest`` from now on; after the loop has ended, it leaves at once. From any thread."""
        self._invited.append(guest)
        self._wake()
        if self._ended:
            self._guests.see_off()

    def stop(self) -> None:
        """Closes every connection and joins the thread."""
        self._stopping = True
        self._wake()
        if self._own_thread.is_alive() and threading.get_ident() != self._thread_id:
            self._own_thread.join()

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        while not self._stopping:
            try:
                self._turn()
            except Exception:  # an ended loop would silence every client
                _log.exception("processor_turn_failed", processor=self.index)
                self._report_again()
        for connection in list(self._connections.values()):
            self._close(connection)
        self._ended = True
        self._guests.see_off()
        self._new_connections.close()
        self._epoll.close()
        self._wake_up.close()

    def _turn(self) -> None:
        before = time.monotonic_ns()
        more = self._answered or self._dear or self._waiting or self._unsettled
        timeout = 0.0 if more else _RETRY_S if self._stalled or self._starved else _TICK_S
        throttle_ends_ns = self._throttled.next_ns
        if throttle_ends_ns < before + _TICK_NS:
            timeout = min(timeout, max(throttle_ends_ns - before, 0) / 1e9)
        events = self._epoll.poll(timeout)
        now_ns = self.loop_ns = time.monotonic_ns()
        self.idle_ns += now_ns - before
        now_ms = now_ns // 1_000_000
        crowded: object = self._waiting
        wake_fd = self._wake_up.fd
        for fd, mask in events:
            if fd == wake_fd:
                self._wake_up.take()
                continue
            connection = self._connections.get(fd)
            if connection is not None:
                if connection.cost_ns > DEAR_NS:
                    self._dear[connection] = self._dear.get(connection, 0) | mask
                elif crowded:
                    self._wait_in_crowd(connection, mask, now_ns)
                else:
                    self._serve(connection, mask, now_ms)
                    if len(events) > _FEW and time.monotonic_ns() - now_ns > TURN_NS:
                        crowded = True
            elif fd in self._visits:
                self._guests.serve(fd)
        if throttle_ends_ns <= now_ns:
            self._end_throttles(now_ns)
        if self._invited or self._arrived or self._stalled or self._waiting or self._dear or self._starved:
            self._serve_others(now_ms)
        self._settle_and_flush()
        if now_ms >= self._sweep_ms:
            self._sweep_some(now_ms)

    def _serve_others(self, now_ms: int) -> None:
        """Serves work that is not among this turn's events, or that was deferred until after them."""
        if self._invited or self._arrived:
            self._guests.let_in()
            self._register_arrived(now_ms)
        if self._stalled:
            self._stalled_requests.retry()
        if self._waiting:
            self._out_of_turn.serve_crowd(now_ms)
        if self._dear:
            self._out_of_turn.serve_dear(now_ms)
        if self._starved:
            for connection in self._rations.fed():
                self._watch(connection)

    def _sweep_some(self, now_ms: int) -> None:
        self._memory.collect()
        for connection in self._sweep.to_close(self._connections.values(), now_ms):
            self._close(connection)
        if self._quotas.excess > 0:
            self._close_excess()
        self._sweep_ms = self._sweep.due_ms
        if not self._sweep_ms:
            self._wake()  # the rest is for the next turn

    def _settle_and_flush(self) -> None:
        """What connections leave that go on meanwhile is for the next turn: they may have received many requests."""
        for _ in range(2):
            self._unsettled = self._settle()
            if self._answered:
                self._flush_answered()
                if self._went_on:
                    self._went_on = False
                    self._unsettled = self._settle()
            if not self._unsettled:
                return

    def _wait_in_crowd(self, connection: Connection, mask: int, now_ns: int) -> None:
        """Queues the connection in the crowd and has epoll report no more of what is known: a thousand ready
        connections in each turn are expensive too. From then on each arrival is reported once, so that a connection
        which is mostly in a crowd costs no call of epoll's; what it leaves unread is asked for again.
        """
        self._crowd.add(connection, mask, now_ns)
        if connection.events == IN and connection.drains:
            connection.events = IN_ONCE
            self._epoll.modify(connection.fd, IN_ONCE)
        elif connection.events and connection.events != IN_ONCE:
            connection.events = 0
            self._epoll.modify(connection.fd, 0)

    def _report_again(self) -> None:
        """After a turn that failed, which may have lost what was reported once, and whose turn it was."""
        for connection in self._connections.values():
            if connection in self._dear or connection in self._waiting:
                continue
            with suppress(OSError):
                if connection.muted & OUT_OF_TURN:
                    self._out_of_turn.put_off(connection)
                else:
                    connection.drained = False
                    self._watch(connection)

    def _serve(self, connection: Connection, mask: int, now_ms: int) -> None:
        connection.last_active_ms = now_ms
        if connection.transport.wants:  # it waited for the other direction than the connection did
            mask ^= IN | OUT
        if mask & IN_OR_GONE and not connection.muted:
            if connection.memory.over and connection.wants_room() and not self._rations.may_grow(connection):
                self._watch(connection)
                if mask & GONE:
                    self._close(connection)
                return
            began_ns = time.monotonic_ns() if connection.info.network_ns >= 0 else 0
            try:
                open_ = connection.receive(self._shared)
            except BlockingIOError:
                open_ = connection.drained = True
                self._watch(connection)
            except OSError:
                open_ = False
            if not open_:
                self._close(connection)
                return
            if connection.events == IN_ONCE and (mask & ENDS or not connection.drained):
                connection.drained = False  # there is more, if only the end
                self._watch(connection)
            self._handle_frames(connection, began_ns)
        elif mask & GONE:
            self._close(connection)
            return
        elif mask & HALF_CLOSED and not connection.out:
            connection.is_half_closed = True
            if connection.has_ended():
                self._close(connection)
                return
            self._watch(connection)
        if mask & OUT:
            self._mark(connection)

    def _handle_frames(self, connection: Connection, began_ns: int = 0) -> None:
        cpu_ns = self._out_of_turn.visit_began_ns() if connection.cost_ns or self._waiting else 0
        receive_ns = time.monotonic_ns()
        info, in_flight = connection.info, connection.in_flight
        if began_ns:
            info.network_ns += receive_ns - began_ns
        spent_ns = 0
        try:
            while (frame := connection.next_frame()) is not None:
                if connection.login is not None and took_frame(
                    connection, connection.login, frame, receive_ns, self._max_frame_bytes
                ):
                    if connection.muted:
                        self._watch(connection)
                    continue
                api_key, version, correlation_id, client_id, body_at = split_request_header(frame)
                body, on_answer = frame[body_at:], connection.on_answer
                request = Request(
                    api_key, version, correlation_id, client_id, body, info, receive_ns, on_answer
                )
                in_flight.append(request)
                verdict = self._dispatch(request)
                if request.done and request.payload is None:
                    # To be closed: further frames are neither handled nor logged.
                    self._mute(connection, UNANSWERED)
                    break
                if info.throttled_until_ns != connection.throttled_until_ns:
                    self._throttle(connection)
                if verdict is not _SERVED:
                    self._hold(connection, request, verdict)
                    spent_ns = time.monotonic_ns() - receive_ns
                elif len(in_flight) >= PIPELINED and connection.asks_too_much():
                    self._mute(connection, UNANSWERED)  # even if all are answered
                elif (spent_ns := time.monotonic_ns() - receive_ns) > DEAR_NS:
                    self._out_of_turn.look_at(connection, spent_ns)
        except ProtocolError as error:
            log_refusal(
                "request_refused",
                info.client_address,
                str(error),
                listener=info.listener_name,
                action="connection closed; is the peer a Kafka client for this listener?",
            )
            connection.closing = True
            self._mark(connection)
        connection.settle(self._shared)
        if cpu_ns or 0 < spent_ns < connection.asked_ns:
            self._out_of_turn.note_cost(connection, cpu_ns, spent_ns)

    def _hold(self, connection: Connection, request: Request, verdict: Verdict) -> None:
        if not request.done:
            self._mute(connection, UNANSWERED)
        if verdict is Verdict.FULL:
            self._stalled_requests.add(connection, request)

    def _go_on(self, connection: Connection, cause: int) -> None:
        """Ends a cause of being muted. If there is no other, the connection continues; if responses are
        unsent, sending them decides when.
        """
        connection.muted &= ~cause
        if connection.muted or connection.closing:
            return
        if connection.out:
            connection.muted = UNANSWERED
            return
        self._handle_frames(connection)
        self._watch(connection)

    def _throttle(self, connection: Connection) -> None:
        """Mutes the connection for the time that its last response says (KIP-219)."""
        connection.throttled_until_ns = connection.info.throttled_until_ns
        if not connection.muted & THROTTLED:
            self._throttled.add(connection)
        self._mute(connection, THROTTLED)

    def _end_throttles(self, now_ns: int) -> None:
        """Lets connections continue whose throttle has ended; many at once wait in the crowd."""
        for connection in self._throttled.ended(now_ns):
            if connection.muted != THROTTLED:
                self._go_on(connection, THROTTLED)
            elif connection.cost_ns > DEAR_NS:
                connection.muted = 0
                self._out_of_turn.put_off(connection)
            elif self._waiting or time.monotonic_ns() - now_ns > TURN_NS:
                connection.muted = 0
                self._out_of_turn.put_off(connection, in_crowd=True)
            else:
                self._go_on(connection, THROTTLED)

    def _on_answer(self, connection: Connection, _request: Request) -> None:
        """Called when a request of the connection is answered, on whichever thread answered it."""
        if not connection.dirty:
            connection.dirty = True
            self._answered.append(connection)
        if threading.get_ident() != self._thread_id:
            self._wake()

    def _mark(self, connection: Connection) -> None:
        if not connection.dirty:
            connection.dirty = True
            self._answered.append(connection)

    def _flush_answered(self) -> None:
        count = len(self._answered)
        until_ns = time.monotonic_ns() + TURN_NS if count > _FEW else 0
        for _ in range(count):
            connection = self._answered.popleft()
            if connection.dirty and connection.fd >= 0:  # otherwise it was already sent
                connection.dirty = False  # before collecting: a response that comes meanwhile marks it again
                self._flush(connection)
                if until_ns:
                    self._late = time.monotonic_ns() > until_ns
        self._late = False

    def _flush(self, connection: Connection) -> None:
        began_ns = time.monotonic_ns()
        if not connection.collect_answers(self.times, began_ns):
            connection.closing = True
        try:
            connection.transport.send(connection.out)
        except OSError as error:
            tell_if_cut_off(error, connection.info)
            self._close(connection)
            return
        info = connection.info
        if info.network_ns >= 0:
            info.network_ns += time.monotonic_ns() - began_ns
        if connection.closing and not connection.out:
            self._close(connection)
            return
        if info.throttled_until_ns != connection.throttled_until_ns:
            self._throttle(connection)
        if connection.muted & UNANSWERED and not (
            connection.in_flight or connection.out or connection.closing
        ):
            connection.muted &= ~UNANSWERED
            if connection.muted:
                pass  # for another cause
            elif connection.cost_ns > DEAR_NS:
                self._out_of_turn.put_off(connection)
            elif self._late or self._waiting:
                self._out_of_turn.put_off(connection, in_crowd=True)
            else:
                self._went_on = True
                self._handle_frames(connection)
        self._watch(connection)

    def _mute(self, connection: Connection, cause: int) -> None:
        connection.muted |= cause
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Sets the epoll events."""
        if connection.out and not connection.muted:
            connection.muted = UNANSWERED  # the peer reads more slowly than it sends requests
        events = events_of(connection)
        if events != connection.events and connection.fd >= 0:
            connection.events = events
            self._epoll.modify(connection.fd, events)

    def _register_arrived(self, now_ms: int) -> None:
        for connection in self._new_connections.admitted(now_ms):
            connection.on_answer = partial(self._on_answer, connection)
            connection.events = IN
            connection.cost_ns = self._dear_addresses.first_cost(connection.info.client_address)
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, IN)
        if self._arrived:
            self._wake()  # the rest is for the next turn
        if self._quotas.excess > 0:
            self._close_excess()

    def _close(self, connection: Connection) -> None:
        fd, connection.fd = connection.fd, -1
        if fd < 0:
            return
        del self._connections[fd]
        self._epoll.unregister(fd)
        self._rations.forget(connection)
        self._out_of_turn.forget(connection)
        if connection.muted & THROTTLED:
            self._throttled.forget(connection)
        connection.leave()
        self._quotas.remove(connection.info.client_address, connection.info.listener_name)

    def _close_excess(self) -> None:
        """Closes client connections while ``max.connections`` is exceeded, because brokers are admitted
        anyway, as in Kafka.
        """
        for connection in in_the_way(self._connections.values(), self._quotas):
            self._close(connection)
