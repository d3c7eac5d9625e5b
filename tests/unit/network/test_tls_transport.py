"""TLS over socket pairs: what a connection sends and receives, with a peer that is slow, gone or strange."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.network.connection import Connection
from broker.network.request_channel import ConnectionInfo
from broker.network.tls_transport import RECORD, TlsTransport, is_goodbye, sends_in_kernel
from broker.network.transport import MOST_AT_ONCE, Piece
from broker.utils.file_region import FileRegion
from tests.support.tls_pairs import TlsPair, contexts, received_frames, tls_pair

MIB = 1024 * 1024


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TlsPair]:
    with tls_pair(*contexts(tmp_path, ssl.TLSVersion[request.param])) as made:
        yield made


def drained(pair: TlsPair, out: deque[Piece], size: int) -> bytes:
    """What the peer reads while everything is sent."""
    with ThreadPoolExecutor(1) as reader:
        received = reader.submit(pair.read_exactly, size)
        while out:
            pair.transport.send(out)
            if out:
                select.select([], [pair.transport.fileno()], [], 5)
        return received.result(60)


def test_pieces_of_every_kind_arrive_in_their_order(pair: TlsPair, tmp_path: Path) -> None:
    content = os.urandom(3 * MIB + 17)
    path = tmp_path / "segment"
    path.write_bytes(content)
    with path.open("rb", buffering=0) as file:
        out: deque[Piece] = deque(
            (
                b"head",
                memoryview(b"more"),
                b"",
                FileRegion(file, 5, MIB),
                os.urandom(0),
                FileRegion(file, 0, 7),
                b"x",
            )
        )
        out.extend((content, b"tail"))
        expected = b"headmore" + content[5 : 5 + MIB] + content[:7] + b"x" + content + b"tail"
        assert drained(pair, out, len(expected)) == expected


def test_a_write_that_was_not_taken_goes_on_where_it_stopped_whatever_comes_behind_it(pair: TlsPair) -> None:
    content = os.urandom(4 * MIB)
    out: deque[Piece] = deque((content,))
    while pair.transport.send(out):  # until the kernel takes no more
        pass
    assert out
    out.append(b"later")
    assert pair.transport.send(out) == 0
    assert drained(pair, out, len(content) + 5) == content + b"later"


def test_a_turn_sends_no_more_than_its_share(pair: TlsPair) -> None:
    out: deque[Piece] = deque((bytes(3 * MOST_AT_ONCE),))
    with ThreadPoolExecutor(1) as reader:
        received = reader.submit(pair.read_exactly, 3 * MOST_AT_ONCE)
        turns = []
        while out:
            turns.append(pair.transport.send(out))
            select.select([], [pair.transport.fileno()], [], 5)
        received.result(60)
    assert max(turns) <= MOST_AT_ONCE


def test_a_segment_that_was_cut_off_from_outside_is_an_error(pair: TlsPair, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"")
    with path.open("rb", buffering=0) as file, pytest.raises(OSError, match="ended 10 bytes early"):
        pair.transport.send(deque((FileRegion(file, 0, 10),)))


def test_nothing_decrypted_stays_inside_after_a_receive(pair: TlsPair) -> None:
    content = os.urandom(5 * RECORD + 100)
    buffer = bytearray(2 * RECORD + RECORD // 2)  # room for two records and a half
    received = b""
    with ThreadPoolExecutor(1) as writer:
        sent = writer.submit(pair.peer.sendall, content)
        while len(received) < len(content):
            select.select([pair.transport.fileno()], [], [], 5)
            try:
                count = pair.transport.receive(buffer, 0)
            except BlockingIOError:
                continue
            received += buffer[:count]
            assert pair.transport.pending() == 0
        sent.result(60)
    assert received == content


def test_receiving_nothing_blocks_and_the_end_is_zero(pair: TlsPair) -> None:
    buffer = bytearray(RECORD)
    with pytest.raises(BlockingIOError):
        pair.transport.receive(buffer, 0)
    pair.peer.unwrap_quietly()
    select.select([pair.transport.fileno()], [], [], 5)
    assert pair.transport.receive(buffer, 0) == 0


def test_a_peer_that_vanishes_without_a_goodbye_has_ended_too(pair: TlsPair) -> None:
    pair.peer.raw_close()
    select.select([pair.transport.fileno()], [], [], 5)
    assert pair.transport.has_ended()
    assert pair.transport.receive(bytearray(RECORD), 0) == 0


def test_a_goodbye_is_told_from_a_request_without_decrypting_it(pair: TlsPair) -> None:
    pair.settle()
    assert not pair.transport.has_ended()
    pair.peer.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # the smallest request there is
    select.select([pair.transport.fileno()], [], [], 5)
    assert not pair.transport.has_ended()
    pair.transport.receive(bytearray(RECORD), 0)
    pair.peer.unwrap_quietly()
    select.select([pair.transport.fileno()], [], [], 5)
    assert pair.transport.has_ended()


def test_what_is_cut_off_is_no_goodbye() -> None:
    assert is_goodbye(b"")
    assert not is_goodbye(b"\x15\x03\x03")
    assert not is_goodbye(b"\x15\x03\x03\x00\x1a" + bytes(26) + b"\x17")


def test_closing_says_goodbye(pair: TlsPair) -> None:
    pair.transport.close()
    assert pair.peer.recv(10) == b""  # not an error: nothing was cut off


def test_garbage_in_the_stream_is_an_error_and_no_data(pair: TlsPair) -> None:
    pair.peer.raw_send(b"\x17\x03\x03\x00\x40" + bytes(64))
    select.select([pair.transport.fileno()], [], [], 5)
    with pytest.raises(OSError, match=r"(?i)decryption|bad record|mac"):
        pair.transport.receive(bytearray(RECORD), 0)


def test_hanging_up_never_lets_anything_through_unencrypted(pair: TlsPair) -> None:
    pair.peer.raw_send(b"plain text behind the scenes")
    pair.transport.hang_up()
    with pytest.raises(OSError):  # it is no record
        pair.transport.receive(bytearray(RECORD), 0)
    with pytest.raises(OSError):
        pair.transport.write(memoryview(b"secret"))


def test_a_key_update_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    """OpenSSL's command line client updates its keys when it is told to; Python's cannot."""
    server, _ = contexts(tmp_path, ssl.TLSVersion.TLSv1_3)
    with tls_pair.by_openssl(server) as pair:
        pair.say(b"one\n")
        assert pair.hear(4) == b"one\n"
        pair.say(b"K\n")  # the peer updates its keys and asks for ours
        assert pair.heard_by_peer(b"KEYUPDATE")
        pair.say(b"two\n")
        assert pair.hear(4) == b"two\n"
        pair.transport.send(deque((b"answer\n",)))
        assert pair.heard_by_peer(b"answer")


def test_a_connection_cuts_requests_of_all_sizes_out_of_the_records(pair: TlsPair) -> None:
    shared = bytearray(256 * 1024)
    info = ConnectionInfo("1", "127.0.0.1", "SSL", "SSL")
    connection = Connection(pair.transport, info, 16 * MIB, 0)
    sizes = [1, 20, RECORD - 4, RECORD, 5 * RECORD + 3, 300_000, 3 * MIB, 10]
    contents = [os.urandom(size) for size in sizes]
    stream = b"".join(struct.pack(">i", len(content)) + content for content in contents)
    with ThreadPoolExecutor(1) as writer:
        sent = writer.submit(pair.peer.sendall, stream)
        assert received_frames(pair, connection, len(contents), shared) == contents
        sent.result(60)
    assert connection.memory.used == connection.held


def test_a_socket_says_whether_the_kernel_encrypts() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not sends_in_kernel(ours)


def test_a_transport_tells_its_version(pair: TlsPair) -> None:
    assert repr(pair.transport).startswith("<TlsTransport TLSv1.")
    assert isinstance(pair.transport, TlsTransport)
