"""Who is slow to take an answer from a deleted segment's file keeps its space on the disk, and not for long."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_channel import Request, Verdict
from broker.network.socket_server import SocketServer
from broker.utils.file_region import FileRegion
from rig.wait import wait_until

SIZE = 32 << 20  # more than the kernel holds for a socket that nobody reads
PARKED = 99


class Files:
    """Answers with all of ``file``; keeps request ``PARKED``."""

    def __init__(self, file: FileIO) -> None:
        self.file = file
        self.parked: list[Request] = []

    def __call__(self, request: Request) -> Verdict:
        if request.correlation_id == PARKED:
            request.keep()
            self.parked.append(request)
        else:
            head = struct.pack(">ii", 4 + SIZE, request.correlation_id)
            request.respond((head, FileRegion(self.file, 0, SIZE)))
        return Verdict.SERVED


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    with path.open("wb") as file:
        file.truncate(SIZE)
    return path


@pytest.fixture
def server(segment: Path) -> Iterator[SocketServer]:
    server = SocketServer(
        [Endpoint("127.0.0.1", 0, "PLAINTEXT", "PLAINTEXT")],
        num_processors=1,
        max_frame_bytes=1 << 20,
        idle_ms=-1,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=ConnectionQuotas(100, 100, {}),
        deleted_file_ms=2_000,
    )
    server.bind()
    with FileIO(segment) as file:
        server.start(Files(file))
        yield server
        server.stop()


def asking(server: SocketServer, *numbers: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 30)
    for number in numbers:
        payload = struct.pack(">hhih", 3, 1, number, 1) + b"c"
        sock.sendall(struct.pack(">i", len(payload)) + payload)
    assert numbers[0] == PARKED or sock.recv(1)
    return sock


def test_who_does_not_read_is_closed_once_the_segment_is_deleted_for_so_long(
    server: SocketServer, segment: Path
) -> None:
    with asking(server, 1):
        segment.unlink()
        wait_until(lambda: server.connection_count == 0)


def test_who_takes_a_little_now_and_then_is_closed_too(server: SocketServer, segment: Path) -> None:
    with asking(server, 1) as sock:
        segment.unlink()

        def took_and_was_closed() -> bool:
            try:
                sock.recv(100_000, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            return server.connection_count == 0

        wait_until(took_and_was_closed)


def test_an_answer_that_waits_behind_another_request_holds_no_deleted_segment_either(
    server: SocketServer, segment: Path
) -> None:
    with asking(server, PARKED, 1):
        segment.unlink()
        wait_until(lambda: server.connection_count == 0)


def test_who_does_not_read_from_a_segment_that_is_there_is_let_be(
    server: SocketServer, segment: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    os.link(segment, other)
    with asking(server, 1) as slow:
        segment.unlink()
        # Long enough for several looks: a wait for nothing to happen.
        deadline = time.monotonic() + 5
        wait_until(lambda: time.monotonic() > deadline or server.connection_count == 0)
        assert server.connection_count == 1
        slow.settimeout(30)
        left = SIZE + 8 - 1
        while left:
            left -= len(slow.recv(min(left, 1 << 20)))
