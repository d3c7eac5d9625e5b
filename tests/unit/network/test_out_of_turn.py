"""In which order a crowd's connections are served, and when their responses are sent."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from broker.network.connection import Connection
from broker.network.out_of_turn import OutOfTurn
from broker.network.request_channel import ConnectionInfo, Request
from broker.network.shares import DEAR_NS
from broker.network.transport import PlainTransport
from tests.support.clocks import Nanoseconds

READABLE = 1
SHORT, LONG = (b"answer",), (b"prefix", b"records")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Nanoseconds:
    """The time that a turn has must not pass by itself on a busy machine."""
    made = Nanoseconds()
    monkeypatch.setattr(time, "monotonic_ns", made)
    return made


class Turn:
    """A crowd of connections, each with one request, and what is done with them. ``each`` is called while a request
    is served.
    """

    def __init__(self, *payloads: tuple[bytes, ...], each: Callable[[], None] = lambda: None) -> None:
        self.done: list[str] = []
        self.each = each
        self.others: list[socket.socket] = []
        self.connections: list[Connection] = []
        self.payloads: dict[str, tuple[bytes, ...]] = {}
        self.out_of_turn = OutOfTurn(
            serve=self.serve,
            go_on=lambda connection, _cause: self.note("goes on", connection),
            flush=lambda connection: self.note("is sent", connection),
            watch=lambda connection: self.note("is watched", connection),
            settle=lambda: None,
        )
        for number, payload in enumerate(payloads):
            ours, other = socket.socketpair()
            self.others.append(other)
            info = ConnectionInfo(str(number), "127.0.0.1", "PLAINTEXT")
            connection = Connection(PlainTransport(ours), info, 1 << 20, 0)
            self.connections.append(connection)
            self.payloads[str(number)] = payload
            self.out_of_turn.crowd.add(connection, READABLE, time.monotonic_ns())

    def note(self, what: str, connection: Connection) -> None:
        self.done.append(f"{connection.info.connection_id} {what}")

    def serve(self, connection: Connection, mask: int, _now_ms: int) -> None:
        assert mask == READABLE
        self.note("is served", connection)
        request = Request(0, 9, 1, "c", memoryview(b""), connection.info, 1, lambda _request: None)
        connection.in_flight.append(request)
        request.respond(self.payloads[connection.info.connection_id])
        connection.dirty = True
        self.each()

    def close(self) -> None:
        for connection in self.connections:
            connection.leave()
        for other in self.others:
            other.close()


@pytest.fixture
def turns() -> Iterator[list[Turn]]:
    made: list[Turn] = []
    yield made
    for turn in made:
        turn.close()


def after(turn: Turn) -> list[str]:
    turn.out_of_turn.serve_crowd(0)
    return [line for line in turn.done if not line.endswith("watched")]


def test_short_answers_are_sent_in_a_row_when_all_of_a_burst_are_served(turns: list[Turn]) -> None:
    turns.append(turn := Turn(SHORT, SHORT, SHORT))
    assert after(turn) == [
        *(f"{number} is served" for number in range(3)),
        *(f"{number} is sent" for number in range(3)),
    ]
    assert sorted(line for line in turn.done if line.endswith("watched")) == [
        f"{number} is watched" for number in range(3)
    ]


def test_an_answer_with_records_ends_the_burst(turns: list[Turn]) -> None:
    turns.append(turn := Turn(SHORT, LONG, SHORT))
    assert after(turn) == ["0 is served", "1 is served", "0 is sent", "1 is sent", "2 is served", "2 is sent"]


def test_a_burst_is_sixteen_at_most(turns: list[Turn]) -> None:
    turns.append(turn := Turn(*[SHORT] * 20))
    lines = after(turn)
    assert lines[:17] == [*(f"{number} is served" for number in range(16)), "0 is sent"]
    assert len(lines) == 40


def test_a_burst_ends_with_the_time_that_a_turn_has(turns: list[Turn], clock: Nanoseconds) -> None:
    """Each takes longer than both orders have: one of each is served, and the rest waits for the next turn."""
    turns.append(turn := Turn(*[SHORT] * 4, each=lambda: clock.pass_ms(2)))
    assert after(turn) == ["0 is served", "0 is sent", "1 is served", "1 is sent"]
    assert len(turn.out_of_turn.crowded) == 2


def use(cpu_ns: int) -> None:
    until_ns = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < until_ns:
        pass


def measured(turn: Turn) -> int:
    """What a visit that does nothing is found to cost."""
    connection = turn.connections[-1]
    connection.cost_ns = 0
    turn.out_of_turn.note_cost(connection, turn.out_of_turn.visit_began_ns(), 1)
    return connection.cost_ns


def test_a_visit_does_not_pay_for_one_that_ended_without_a_request(turns: list[Turn]) -> None:
    """As when a peer has gone: its buffers are freed, and its descriptor is closed."""
    turns.append(turn := Turn(*[SHORT] * 10))
    costs: list[int] = []

    def each() -> None:
        if len(turn.done) < 10:
            use(DEAR_NS // 4)
        else:
            costs.append(measured(turn))

    turn.each = each
    after(turn)
    assert costs
    assert costs[-1] < DEAR_NS


def test_a_visit_does_not_pay_for_what_came_after_a_turn_that_failed(turns: list[Turn]) -> None:
    def fail() -> None:
        raise RuntimeError("planted")

    turns.append(turn := Turn(SHORT, each=fail))
    with pytest.raises(RuntimeError):
        after(turn)
    use(2 * DEAR_NS)
    assert measured(turn) < DEAR_NS
