"""The benchmark's hostile peers: what they send is what they say, and no broker that hangs up ends them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from bench.client.hostile import (
    Crowd,
    Held,
    HostilePeer,
    Hostility,
    IdleSession,
    Numbered,
    Page,
    Peer,
    Repeated,
    Storm,
    Tally,
    attack,
)
from bench.hostile_arrays import Place, Row
from bench.hostilities import ROWS
from broker.protocol import codec, framing
from broker.protocol.api_keys import APIS
from rig.wait import wait_until
from rig.wire import receive_frame
from tests.support.sockets import serving

ANSWER = struct.pack(">ii", 8, 1) + b"body"
SHORT_S = 0.3
LIMIT_S = 60.0


@dataclass(frozen=True)
class Until:
    """Ends the peer as soon as ``enough`` says so: it has the lowest priority, so no time is long enough for it."""

    does: Hostility
    enough: Callable[[Peer], bool]

    def begin(self, peer: Peer) -> Iterator[None]:
        self._judge(peer)
        for _ in self.does.begin(peer):
            self._judge(peer)
            yield

    def _judge(self, peer: Peer) -> None:
        if self.enough(peer):
            raise TimeoutError


def attack_until(does: Hostility, port: int, enough: Callable[[Peer], bool]) -> Tally:
    return attack(Until(does, enough), port, LIMIT_S)


def answered_twice(peer: Peer) -> bool:
    return peer.answered > 1


def test_a_peer_repeats_its_requests_in_turn_after_its_opening() -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while True:
            seen.append(receive_frame(connection))
            connection.sendall(ANSWER)

    frames = [struct.pack(">i", 1) + each for each in (b"a", b"b")]
    with serving(serve) as port:
        opening = struct.pack(">i", 1) + b"o"
        tally = attack_until(
            Repeated(frames, in_flight=3, opening=opening), port, lambda peer: peer.answered > 4
        )
    assert seen[:5] == [b"o", b"a", b"b", b"a", b"b"]
    assert tally.answered > 4
    assert tally.closed == 0


def test_a_peer_that_is_put_out_comes_again() -> None:
    with serving(lambda connection: connection.close()) as port:
        tally = attack_until(Repeated([ANSWER]), port, lambda peer: peer.closed > 1)
    assert tally.answered == 0
    assert tally.closed == 2


def test_a_peer_whose_broker_is_gone_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert attack(Repeated([ANSWER]), port, SHORT_S).answered == 0


def test_a_peer_whose_broker_says_nothing_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert attack(Repeated([ANSWER]), listener.getsockname()[1], SHORT_S).answered == 0


def test_a_session_is_asked_with_its_id_and_the_next_epoch() -> None:
    seen: list[tuple[int, int]] = []

    def serve(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall(struct.pack(">iibihi", 15, 1, 0, 0, 0, 4711))
        while True:
            seen.append(struct.unpack_from(">ii", receive_frame(connection), 2))
            connection.sendall(ANSWER)

    empty = struct.pack(">ihii", 10, 0, 0, 0)
    with serving(serve) as port:
        attack_until(IdleSession(ANSWER, empty, 4 + 2 + 4), port, lambda _: len(seen) > 2)
    assert seen[:3] == [(4711, 1), (4711, 2), (4711, 3)]


def test_numbered_requests_differ_and_begin_anew() -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while True:
            seen.append(receive_frame(connection))
            connection.sendall(ANSWER)

    with serving(serve) as port:
        attack_until(
            Numbered(struct.pack(">i", 10) + b"n########n", 5, numbers=3), port, lambda _: len(seen) > 3
        )
    assert seen[:4] == [b"n00000000n", b"n00000001n", b"n00000002n", b"n00000000n"]


def test_a_crowd_asks_again_on_every_connection_that_is_not_closed() -> None:
    asked: list[int] = []

    def serve(connection: socket.socket) -> None:
        number = len(asked)
        asked.append(0)
        while True:
            receive_frame(connection)
            asked[number] += 1
            if number == 0:
                return
            connection.sendall(ANSWER[:6])
            connection.sendall(ANSWER[6:])

    with serving(serve) as port:
        tally = attack_until(
            Crowd(struct.pack(">i", 1) + b"a", 5),
            port,
            lambda peer: peer.closed == 1 and len(asked) == 5 and min(asked[1:]) > 2,
        )
    assert len(asked) == 5
    assert all(count > 2 for count in asked[1:])
    assert tally.closed == 1
    assert tally.answered >= sum(asked) - 5


def test_what_is_held_is_sent_on_each_connection_and_kept_open_until_the_end() -> None:
    held: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        data = connection.recv(100)
        assert connection.recv(1) == b""
        held.append(data)

    with serving(serve) as port:
        attack(Held(b"half", 3), port, SHORT_S)
        wait_until(lambda: len(held) == 3)
    assert held == [b"half"] * 3


def test_a_storm_and_pages_are_a_connection_each() -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        seen.append(connection.recv(1000))

    with serving(serve) as port:
        assert attack_until(Storm(b"x"), port, lambda _: b"x" in seen).answered > 0
    with serving(serve) as port:  # where no connections of the storm wait before it
        assert attack_until(Page("/metrics"), port, answered_twice).answered == 2
    assert seen[-1].startswith(b"GET /metrics HTTP/1.1\r\n")


def test_a_peer_is_a_process_of_its_own() -> None:
    with (
        serving(lambda connection: connection.close()) as port,
        HostilePeer(Until(Storm(), answered_twice), port, LIMIT_S) as peer,
    ):
        peer.go()
        assert peer.done_within(2 * LIMIT_S)
        assert peer.result().answered == 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_the_requests_of_every_row_are_decoded(row: Row) -> None:
    """But those that are halves, or garbage: a mistake in a request would measure a refusal."""
    does = row.does(Place("victim", "own", 3))
    frames: list[bytes] = []
    if isinstance(does, Repeated):
        frames += does.frames
    elif isinstance(does, Crowd | Numbered):
        frames.append(does.frame)
    elif isinstance(does, IdleSession):
        frames += [does.opening, does.empty]
    for frame in frames:
        key, version = struct.unpack_from(">hh", frame, 4)
        assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
        if row.key == "garbage":
            assert version > APIS[key].max_version
            continue
        codec.decode(
            key, version, "request", memoryview(frame)[len(frame) - _body_size(frame, key, version) :]
        )


def _body_size(frame: bytes, key: int, version: int) -> int:
    return len(frame) - len(framing.request_prefix(key, version, 1, "hostile", 0))


def test_rows_have_keys_and_titles_of_their_own() -> None:
    assert len({row.key for row in ROWS}) == len({row.title for row in ROWS}) == len(ROWS)
