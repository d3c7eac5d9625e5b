"""Answers from segments that were deleted, or cut off, before all of it was sent: who is slow to take one from a
deleted file keeps its space on the disk, and not for long.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
import structlog

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.cut_off import tell_if_cut_off
from broker.network.request_channel import ConnectionInfo, Request, Verdict
from broker.network.socket_server import SocketServer
from broker.utils.file_region import FileRegion
from broker.utils.refusal_log import _refusals
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


def test_an_answer_from_a_file_that_was_cut_off_is_told(server: SocketServer, segment: Path) -> None:
    _refusals._peers.clear()  # a line a second
    with structlog.testing.capture_logs() as lines, asking(server, 1) as sock:
        os.truncate(segment, SIZE - 1)
        sock.settimeout(30)
        while sock.recv(1 << 20):
            pass
        (line,) = lines
    assert (line["event"], line["peer"]) == ("answer_cut_off", "127.0.0.1")
    assert "ended" in line["reason"]


def test_a_reader_that_hangs_up_in_the_middle_of_an_answer_is_not_told(server: SocketServer) -> None:
    _refusals._peers.clear()
    with structlog.testing.capture_logs() as lines:
        with asking(server, 1) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # by a reset
        wait_until(lambda: server.connection_count == 0)
    assert not lines


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.EPIPE, "Broken pipe"), False),
        (ssl.SSLError(ssl.SSL_ERROR_SYSCALL, "Some I/O error occurred"), False),
    ],
)
def test_of_failures_to_send_those_of_the_file_are_told(error: OSError, is_told: bool) -> None:
    _refusals._peers.clear()
    with structlog.testing.capture_logs() as lines:
        tell_if_cut_off(error, ConnectionInfo("1", "10.0.0.1", "CLIENT"))
    assert [line["reason"] for line in lines] == ([str(error)] if is_told else [])
