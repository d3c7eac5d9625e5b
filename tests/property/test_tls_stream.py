"""A TLS connection's output, whatever it is made of and however little the socket takes, arrives as it was given."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections import deque
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.network.connection import Connection
from broker.network.request_channel import ConnectionInfo
from broker.network.transport import Piece
from broker.utils.file_region import FileRegion
from tests.support.tls_pairs import TlsPair, contexts, received_frames, tls_pair

FILE_BYTES = 300_000
SIZES = st.one_of(
    st.integers(0, 40),
    st.sampled_from((16_383, 16_384, 16_385, 65_535, 65_536, 65_537)),
    st.integers(0, 200_000),
)
KINDS = st.sampled_from(("bytes", "view", "region"))
relaxed = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts(tmp_path_factory.mktemp("tls"), ssl.TLSVersion.TLSv1_3)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    data = os.urandom(FILE_BYTES)
    path = tmp_path_factory.mktemp("segment") / "segment"
    path.write_bytes(data)
    return data, path


def narrow(pair: TlsPair) -> None:
    """Lets the kernel take little at a time."""
    for fd in (pair.transport.fileno(), pair.peer.sock.fileno()):
        with socket.socket(fileno=os.dup(fd)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


@relaxed
@given(pieces=st.lists(st.tuples(KINDS, SIZES), min_size=1, max_size=12), at_once=st.integers(1, 6))
def test_what_is_sent_arrives(
    ends: tuple[ssl.SSLContext, ssl.SSLContext],
    content: tuple[bytes, Path],
    pieces: list[tuple[str, int]],
    at_once: int,
) -> None:
    data, path = content
    with tls_pair(*ends) as pair, path.open("rb", buffering=0) as file:
        narrow(pair)
        made: list[Piece] = []
        for kind, size in pieces:
            if kind == "region" and size:
                made.append(FileRegion(file, 7, size))
            else:
                made.append(memoryview(data)[7 : 7 + size] if kind == "view" else data[7 : 7 + size])
        expected = b"".join(data[7 : 7 + size] for _, size in pieces)
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(pair.read_exactly(len(expected))))
        reader.start()
        out: deque[Piece] = deque()
        while made or out:  # more is added behind what is not taken yet, as answers are
            out.extend(made[:at_once])
            del made[:at_once]
            pair.transport.send(out)
            if out and not made:
                select.select([], [pair.transport.fileno()], [], 10)
        reader.join(60)
        assert received == [expected]


@relaxed
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=12), shared_bytes=st.sampled_from((16_384, 65_536, 262_144))
)
def test_requests_of_all_sizes_come_out_of_the_records(
    ends: tuple[ssl.SSLContext, ssl.SSLContext], sizes: list[int], shared_bytes: int
) -> None:
    with tls_pair(*ends) as pair:
        narrow(pair)
        contents = [os.urandom(size) for size in sizes]
        stream = b"".join(struct.pack(">i", len(each)) + each for each in contents)
        writer = threading.Thread(target=pair.peer.sendall, args=(stream,))
        writer.start()
        connection = Connection(pair.transport, ConnectionInfo("1", "127.0.0.1", "SSL", "SSL"), 1 << 24, 0)
        frames = received_frames(pair, connection, len(contents), bytearray(shared_bytes))
        writer.join(60)
        assert frames == contents
        connection.drop_buffer()
        assert connection.memory.used == 0
