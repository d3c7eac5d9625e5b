"""Load that a broker has to remember: open connections, and thousands of small requests."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import crc32c

from bench.client.batches import CRC_STARTS_AT, encode_batch
from bench.client.connection import Connection
from bench.client.requests import (
    PRODUCE,
    PRODUCE_VERSION,
    REQUEST_TIMEOUT_MS,
    FieldReader,
    RawClientError,
    blob,
    fetch_request,
    request,
    string,
)
from bench.client.tls import ClientTls
from rig.brokers import HOST
from rig.wire import API_VERSIONS, framed

OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 2
DELETE_GROUPS, DELETE_GROUPS_VERSION = 42, 0
GROUP_MAX_SIZE_REACHED: Final = 81
ADDRESSES: Final = 50
HALF_BYTES: Final = 512 << 10
FETCH_BYTES: Final = 1 << 20
FETCHES: Final = 8
SMALL_WINDOW: Final = 4096
IN_FLIGHT: Final = 64
GROUPS_OF_A_DELETION: Final = 500
CONNECT_TIMEOUT_S: Final = 30.0
ANSWER_ROOM: Final = 1 << 20
SEND_S: Final = 60.0
QUIET_S: Final = 2.0
PRODUCER_AT: Final = 43
PRODUCER = struct.Struct(">qhi")
CRC = struct.Struct(">I")


@contextmanager
def idle_connections(port: int, count: int, tls: ClientTls | None = None) -> Iterator[None]:
    """Connections that send one ApiVersions request and then nothing."""
    with ExitStack() as stack:
        question = framed(API_VERSIONS, 0, 1, b"")
        for number in range(count):
            one = stack.enter_context(_connect(port, number))
            if tls is not None:
                one = stack.enter_context(tls.wrap(one))
            one.sendall(question)
            if not one.recv(ANSWER_ROOM):
                raise RawClientError(f"connection {number} was closed")
        yield


@contextmanager
def half_frames(port: int, count: int) -> Iterator[None]:
    """Connections that announced a produce request and sent its first half, as far as the broker
    accepts it.
    """
    head = struct.pack(">i", 2 * HALF_BYTES) + struct.pack(">hhih", PRODUCE, PRODUCE_VERSION, 1, -1)
    with ExitStack() as stack:
        held = [stack.enter_context(_connect(port, number)) for number in range(count)]
        _send_to_all(held, head + bytes(HALF_BYTES - len(head)))
        yield


@contextmanager
def deaf_readers(port: int, topic: str, count: int) -> Iterator[None]:
    """Connections that request megabytes of records and read nothing."""
    wanted = fetch_request(topic, 0, 0, FETCH_BYTES) * FETCHES
    with ExitStack() as stack:
        held = [stack.enter_context(_connect(port, number, SMALL_WINDOW)) for number in range(count)]
        _send_to_all(held, wanted)
        yield


def write_as_producers(port: int, topic: str, partitions: int, count: int) -> None:
    """Writes one batch for each of ``count`` producer ids; each request has one batch per partition."""
    batch = bytearray(encode_batch(1, record_bytes=1).data)

    def of_producer(number: int) -> bytes:
        PRODUCER.pack_into(batch, PRODUCER_AT, number, 0, 0)
        CRC.pack_into(batch, CRC_STARTS_AT - CRC.size, crc32c.crc32c(bytes(batch[CRC_STARTS_AT:])))
        return blob(bytes(batch))

    def produce(number: int) -> bytes:
        first = number * partitions
        body = struct.pack(">hhii", -1, 1, REQUEST_TIMEOUT_MS, 1) + string(topic)
        here = min(partitions, count - first)
        data = [struct.pack(">i", each) + of_producer(first + each) for each in range(here)]
        return request(PRODUCE, PRODUCE_VERSION, body + struct.pack(">i", here) + b"".join(data))

    # Only the first partition's error is checked: all are alike.
    _ask_all(port, -(-count // partitions), produce, 4 + 4 + len(string(topic)) + 4 + 4)


def commit_as_groups(port: int, topic: str, prefix: str, count: int) -> None:
    """Commits one offset for each of ``count`` groups."""
    offsets = struct.pack(">q", -1) + struct.pack(">i", 1) + string(topic)
    offsets += struct.pack(">iiq", 1, 0, 1) + string("")

    def commit(number: int) -> bytes:
        body = string(f"{prefix}-{number}") + struct.pack(">i", -1) + string("") + offsets
        return request(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body)

    _ask_all(port, count, commit, 4 + 4 + len(string(topic)) + 4 + 4)


def delete_the_groups(port: int, prefix: str, count: int) -> None:
    """Deletes the groups of :func:`commit_as_groups`, as far as they exist."""
    connection = Connection(port, ANSWER_ROOM)
    try:
        for first in range(0, count, GROUPS_OF_A_DELETION):
            names = [
                f"{prefix}-{number}" for number in range(first, min(count, first + GROUPS_OF_A_DELETION))
            ]
            body = struct.pack(">i", len(names)) + b"".join(map(string, names))
            FieldReader(bytes(connection.ask(request(DELETE_GROUPS, DELETE_GROUPS_VERSION, body))), 8).int32()
    finally:
        connection.close()


def _connect(port: int, number: int, receive_bytes: int = 0) -> socket.socket:
    """Connects from several addresses of this host in turn."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if receive_bytes:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.settimeout(CONNECT_TIMEOUT_S)
        made.bind((f"127.0.1.{1 + number % ADDRESSES}", 0))
        made.connect((HOST, port))
    except BaseException:
        made.close()
        raise
    return made


def _send_to_all(held: list[socket.socket], data: bytes) -> None:
    """Sends until everything is sent, or until no socket accepted anything for a while."""
    left = {one.fileno(): (one, memoryview(data)) for one in held}
    poll = select.poll()
    for one in held:
        one.setblocking(False)
        poll.register(one, select.POLLOUT)
    end = time.monotonic() + SEND_S
    while left and time.monotonic() < end:
        ready = poll.poll(QUIET_S * 1000)
        if not ready:
            return
        for number, _ in ready:
            one, rest = left[number]
            try:
                rest = rest[one.send(rest) :]
            except BlockingIOError:
                continue
            except OSError:  # the broker has closed it
                rest = rest[:0]
            left[number] = one, rest
            if not rest:
                poll.unregister(one)
                del left[number]


def _ask_all(port: int, count: int, frame: Callable[[int], bytes], error_at: int) -> None:
    """Sends many requests with some in flight; stops at an error that says that a limit is reached."""
    connection = Connection(port, ANSWER_ROOM)
    sent = received = 0
    try:
        while received < count:
            if sent < min(count, received + IN_FLIGHT):
                connection.send(frame(sent))
                sent += 1
                continue
            (error,) = struct.unpack_from(">h", connection.receive(), error_at)
            if error == GROUP_MAX_SIZE_REACHED:
                return
            if error:
                raise RawClientError(f"request {received} was answered with error code {error}", error)
            received += 1
    finally:
        connection.close()
