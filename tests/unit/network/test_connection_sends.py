"""What a connection sends in one turn of its Processor, and what it keeps of what it received."""

from __future__ import annotations

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.log.segments.segment_file import SegmentFile
from broker.network.connection import Connection
from broker.network.request_channel import ConnectionInfo, Request
from broker.network.request_times import RequestTimes
from broker.network.transport import PlainTransport
from broker.protocol.api_keys import ApiKey
from broker.utils.file_region import FileRegion
from rig.open_files import deleted_and_open
from rig.wait import wait_until

MIB = 1024 * 1024


def test_an_answer_of_many_megabytes_takes_several_turns_however_fast_its_reader(tmp_path: Path) -> None:
    content = os.urandom(7 * MIB)
    path = tmp_path / "segment"
    path.write_bytes(content)
    ours, theirs = socket.socketpair()  # ours blocks, as if the reader had always taken what was sent
    connection = Connection(
        PlainTransport(ours), ConnectionInfo("1", "127.0.0.1", "PLAINTEXT", "PLAINTEXT"), MIB, 0
    )
    with ours, theirs, path.open("rb", buffering=0) as file, ThreadPoolExecutor(1) as reader:
        connection.out.extend((b"head", FileRegion(file, 0, len(content)), b"tail"))
        received = reader.submit(theirs.makefile("rb").read, len(content) + 8)
        turns = []
        while connection.out:
            turns.append(connection.transport.send(connection.out))
        assert received.result(60) == b"head" + content + b"tail"
    assert turns == [2 * MIB, 2 * MIB, 2 * MIB, MIB + 8]


def test_a_file_is_free_once_its_answer_is_sent_though_something_still_refers_to_the_request(
    tmp_path: Path,
) -> None:
    """Compiled code leaves each answered fetch in a cycle, which the collector finds much later on a quiet broker."""
    info = ConnectionInfo("1", "127.0.0.1", "PLAINTEXT", "PLAINTEXT")
    ours, theirs = socket.socketpair()
    connection = Connection(PlainTransport(ours), info, MIB, 0)
    path = tmp_path / "segment"
    with ours, theirs:
        path.write_bytes(b"records")
        request = Request(ApiKey.FETCH, 11, 1, "c", memoryview(b""), info, 0, lambda _request: None)
        connection.in_flight.append(request)
        request.respond([b"head", FileRegion(SegmentFile(path), 0, 7)])
        path.unlink()
        assert connection.collect_answers(RequestTimes(), 0)
        assert str(path) in deleted_and_open()
        while connection.out:
            connection.transport.send(connection.out)
        wait_until(lambda: str(path) not in deleted_and_open(), timeout=30, what="the file is closed")
        assert theirs.recv(64) == b"headrecords"


def test_the_buffer_of_a_large_request_goes_with_it_and_the_usual_ones_stays(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(
        PlainTransport(ours), ConnectionInfo("1", "127.0.0.1", "PLAINTEXT", "PLAINTEXT"), 16 * MIB, 0
    )
    shared = bytearray(256 * 1024)

    def request_of(size: int) -> bytes:
        content = os.urandom(size)
        sent = sender.submit(theirs.sendall, struct.pack(">i", size) + content)
        while True:
            assert connection.receive(shared)
            whole = list(iter(connection.next_frame, None))
            connection.settle(shared)
            if whole:
                sent.result(60)
                assert whole == [content]
                return content

    with ours, theirs, ThreadPoolExecutor(1) as sender:
        request_of(MIB)
        assert connection.buffer is not None
        assert MIB <= connection.held <= 2 * MIB
        request_of(8 * MIB)
        assert (connection.buffer, connection.held, connection.memory.used) == (None, 0, 0)
        request_of(MIB)  # and it goes on
