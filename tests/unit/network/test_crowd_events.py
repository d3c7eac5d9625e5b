"""What epoll reports of a crowd's connections: each arrival once, and nothing of it is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_channel import Request, Verdict
from broker.network.watching import IN_ONCE
from rig.wait import wait_until
from tests.support.network import Api, frame, is_closed, make_server, read_answer

MEMBERS = 60


class Crowd:
    """Connections that were in a crowd together. ``hold`` stops the network thread until ``release``, so that all that
    is sent in between is there at once.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.server = make_server(ConnectionQuotas(1_000, 1_000, {}))
        self.server.bind()
        self.server.start(api)
        (self.processor,) = self.server._processors
        address = ("127.0.0.1", self.server.bound_ports["PLAINTEXT"])
        self.holder, *self.members = [socket.create_connection(address, 30) for _ in range(MEMBERS + 1)]
        api.cost_ms = 0.2
        self._holds = 1_000
        self.round()

    def hold(self) -> None:
        self._holds += 1
        self.gate = self.api.gates[self._holds] = threading.Event()
        self.holder.sendall(frame(self._holds))
        wait_until(lambda: self._holds in self.api.seen, what="a thread that is held")

    def release(self) -> None:
        self.gate.set()
        assert read_answer(self.holder)[0] == self._holds

    def round(self) -> None:
        """Each member sends a request, all at once, and gets its answer."""
        self.hold()
        for number, member in enumerate(self.members):
            member.sendall(frame(number))
        self.release()
        for number, member in enumerate(self.members):
            assert read_answer(member)[0] == number

    def reported_once(self) -> set[str]:
        """The ids of the connections of which epoll tells each arrival once."""
        every = list(self.processor._connections.values())
        return {each.info.connection_id for each in every if each.events == IN_ONCE}

    def close(self) -> None:
        for sock in (self.holder, *self.members):
            sock.close()
        self.server.stop()


@pytest.fixture
def crowd(api: Api) -> Iterator[Crowd]:
    made = Crowd(api)
    yield made
    made.close()


def test_who_was_in_a_crowd_asks_epoll_for_nothing_again(crowd: Crowd) -> None:
    wait_until(
        lambda: len(crowd.reported_once()) > MEMBERS // 2, what="a crowd, but for the first of the turn"
    )
    before = crowd.reported_once()
    crowd.api.cost_ms = 0.0
    for _ in range(3):
        crowd.round()
    for number, member in enumerate(crowd.members):  # alone as well
        member.sendall(frame(number))
        assert read_answer(member)[0] == number
    # A busy machine may interrupt a few visits for so long that these connections are put off.
    assert len(before & crowd.reported_once()) > len(before) // 2


def test_what_a_member_sends_past_the_shared_buffer_is_read_too(crowd: Crowd) -> None:
    crowd.api.cost_ms, crowd.api.answers = 0.0, b"read"
    crowd.hold()
    for member in crowd.members[-3:]:
        sender = threading.Thread(
            target=member.sendall, args=(b"".join(frame(number, bytes(30_000)) for number in range(40)),)
        )
        sender.start()
    for member in crowd.members[:-3]:
        member.sendall(frame(0))
    crowd.release()
    for member in crowd.members[-3:]:
        assert [read_answer(member) for _ in range(40)] == [(number, b"read") for number in range(40)]


@pytest.mark.parametrize("size", [256 * 1024, 256 * 1024 + 1, 2 * 256 * 1024])
def test_what_fills_the_shared_buffer_exactly_is_answered(crowd: Crowd, size: int) -> None:
    crowd.api.answers = b"read"
    one = frame(5)
    last = frame(6, bytes(size - 9 * len(one) - len(frame(6))))
    crowd.hold()
    for member in crowd.members:
        member.sendall(one)
    sender = threading.Thread(target=crowd.members[-1].sendall, args=(8 * one + last,))
    sender.start()
    crowd.release()
    for member in crowd.members:
        assert read_answer(member) == (5, b"read")
    assert [read_answer(crowd.members[-1])[0] for _ in range(9)] == [5] * 8 + [6]
    sender.join()


@pytest.mark.parametrize("asks", [True, False], ids=["after a request", "alone"])
def test_a_member_that_ends_is_answered_and_closed(crowd: Crowd, *, asks: bool) -> None:
    ending = crowd.members[1::2]
    crowd.hold()
    for number, member in enumerate(crowd.members):
        if asks or member not in ending:
            member.sendall(frame(number))
        if member in ending:
            member.shutdown(socket.SHUT_WR)
    crowd.release()
    for number, member in enumerate(crowd.members):
        if asks or member not in ending:
            assert read_answer(member)[0] == number
        if member in ending:
            assert is_closed(member)
    wait_until(lambda: crowd.server.connection_count == 1 + MEMBERS - len(ending))


def test_the_others_of_a_crowd_are_served_after_a_turn_that_failed() -> None:
    class Failing(Api):
        def __call__(self, request: Request) -> Verdict:
            if request.correlation_id == 666:
                raise RuntimeError("planted")
            return super().__call__(request)

    crowd = Crowd(Failing())
    try:
        crowd.api.cost_ms = 0.0
        crowd.hold()
        for number, member in enumerate(crowd.members):
            member.sendall(frame(number or 666))
        crowd.release()
        for number, member in enumerate(crowd.members[1:], 1):
            assert read_answer(member)[0] == number
    finally:
        crowd.close()
