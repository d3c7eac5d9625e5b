"""What a connection sends in one turn of its Processor, and what it keeps of what it received."""

from __future__ import annotations

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.network.connection import Connection
from broker.network.request_channel import ConnectionInfo
from broker.network.transport import PlainTransport
from broker.utils.file_region import FileRegion

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
