"""What the benchmark has brokers hold: its requests say what they should, and its sockets are held until the end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pytest

from bench.client import holding
from bench.client.requests import RawClientError
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.record.batch import read_records
from broker.record.header import iter_batches
from rig.wait import wait_until
from rig.wire import receive_frame
from tests.support.sockets import serving

HEADER_BYTES = 8 + 2 + len("bench")


def answering(seen: list[bytes], answer: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        while True:
            seen.append(receive_frame(connection))
            connection.sendall(struct.pack(">i", len(answer)) + answer)

    return serve


def decoded(key: ApiKey, version: int, frame: bytes):
    return codec.decode(key, version, "request", memoryview(frame)[HEADER_BYTES:])


def partition_answer(error: int) -> bytes:
    """Of Produce and OffsetCommit alike, as far as they are read: one topic "t", one partition."""
    return (
        struct.pack(">ii", 1, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iih", 1, 0, error) + bytes(28)
    )


def test_every_producer_has_a_sound_batch_of_its_own() -> None:
    seen: list[bytes] = []
    with serving(answering(seen, partition_answer(0))) as port:
        holding.write_as_producers(port, "t", 4, 10)
    batches = [
        data.records
        for frame in seen
        for topic in decoded(ApiKey.PRODUCE, 7, frame).topic_data
        for data in topic.partition_data
    ]
    assert [len(decoded(ApiKey.PRODUCE, 7, frame).topic_data[0].partition_data) for frame in seen] == [
        4,
        4,
        2,
    ]
    headers = [header for data in batches for header in iter_batches(memoryview(data))]
    assert [header.producer_id for header in headers] == list(range(10))
    assert all(len(read_records(data)) == 1 for data in batches)


def test_groups_are_committed_to_one_by_one_and_deleted_together() -> None:
    seen: list[bytes] = []
    with serving(answering(seen, partition_answer(0))) as port:
        holding.commit_as_groups(port, "t", "g", 3)
        committed = [decoded(ApiKey.OFFSET_COMMIT, 2, frame) for frame in seen]
        holding.delete_the_groups(port, "g", 3)
    assert [each.group_id for each in committed] == ["g-0", "g-1", "g-2"]
    assert committed[0].topics[0].partitions[0].committed_offset == 1
    assert decoded(ApiKey.DELETE_GROUPS, 0, seen[-1]).groups_names == ("g-0", "g-1", "g-2")


def test_a_broker_that_has_enough_groups_ends_it_and_another_error_is_told() -> None:
    with serving(answering([], partition_answer(holding.GROUP_MAX_SIZE_REACHED))) as port:
        holding.commit_as_groups(port, "t", "g", 3)
    with (
        serving(answering([], partition_answer(3))) as port,
        pytest.raises(RawClientError, match="error code 3"),
    ):
        holding.commit_as_groups(port, "t", "g", 3)


def test_halves_are_held_from_several_addresses_until_the_end() -> None:
    begun: list[tuple[str, bytes]] = []
    ended: list[int] = []

    def serve(connection: socket.socket) -> None:
        begun.append((connection.getpeername()[0], connection.recv(8)))
        size = 8
        while data := connection.recv(1 << 20):
            size += len(data)
        ended.append(size)

    with serving(serve) as port:
        with holding.half_frames(port, 3):
            wait_until(lambda: len(begun) == 3)
            assert ended == []
        wait_until(lambda: len(ended) == 3)
    assert sorted(address for address, _ in begun) == ["127.0.1.1", "127.0.1.2", "127.0.1.3"]
    assert {struct.unpack_from(">i", head)[0] for _, head in begun} == {2 * holding.HALF_BYTES}
    assert ended == [holding.HALF_BYTES] * 3


def test_an_idle_connection_that_is_refused_is_told() -> None:
    with (
        serving(lambda connection: connection.recv(100)) as port,
        pytest.raises((RawClientError, ConnectionError)),
        holding.idle_connections(port, 2),
    ):
        pass
