"""A raw Kafka client: prepared request bytes, several in flight, answers checked but not decoded.

It costs a tenth of what a client library costs, so that the broker is what is measured. Not a client library:
one broker, one topic, leader known, no retries; any error code ends the run.

Produce v7 and Fetch v11 are the newest versions without flexible fields; every broker of today has them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from tests.support.wire import framed

PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 11
REQUEST_TIMEOUT_MS = 30_000
SOCKET_TIMEOUT_S = 60.0
RECORD_BYTES = 1024
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD = 61
CRC_STARTS_AT = 21


class RawClientError(RuntimeError):
    """The broker answered with an error code, or with bytes of another shape."""


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded record batch (magic 2, no compression, base offset 0)."""

    data: bytes
    records: int


def encode_batch(target_bytes: int, now_ms: int | None = None) -> Batch:
    """Returns a batch of at most ``target_bytes`` that holds as many records of 1 KiB as fit."""
    value = bytes(range(256)) * (RECORD_BYTES // 256)
    records: list[bytes] = []
    size = BATCH_OVERHEAD
    while True:
        record = _record(len(records), value)
        if size + len(record) > target_bytes and records:
            break
        records.append(record)
        size += len(record)
    return _seal(records, int(time.time() * 1000) if now_ms is None else now_ms)


def _record(delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Zigzag, as in record batches."""
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _seal(records: Sequence[bytes], now_ms: int) -> Batch:
    body = b"".join(records)
    last = len(records) - 1
    length = BATCH_OVERHEAD - 12 + len(body)
    unsigned = (
        BATCH_HEADER.pack(0, length, -1, 2, 0, 0, last, now_ms, now_ms, -1, -1, -1, len(records)) + body
    )
    crc = crc32c.crc32c(unsigned[CRC_STARTS_AT:])
    return Batch(unsigned[:17] + struct.pack(">I", crc) + unsigned[CRC_STARTS_AT:], len(records))


def produce_request(topic: str, partition: int, batch: Batch, acks: int = -1) -> bytes:
    """Returns a whole Produce v7 request with one batch for one partition."""
    body = struct.pack(">hhii", -1, acks, REQUEST_TIMEOUT_MS, 1)
    body += _string(topic) + struct.pack(">iii", 1, partition, len(batch.data)) + batch.data
    return framed(PRODUCE, PRODUCE_VERSION, 1, body, b"bench")


def fetch_request(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """Returns a whole Fetch v11 request (no fetch session) for one partition."""
    body = struct.pack(">iiiibii", -1, 500, 1, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + _string(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    body += struct.pack(">i", 0) + _string("")
    return framed(FETCH, FETCH_VERSION, 1, body, b"bench")


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class Connection:
    """One socket to the broker, with a buffer that answers are received into."""

    def __init__(self, host: str, port: int, buffer_bytes: int = 4096) -> None:
        self._socket = socket.create_connection((host, port), timeout=SOCKET_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(buffer_bytes))

    def send(self, request: bytes) -> None:
        """Sends a whole request."""
        self._socket.sendall(request)

    def receive(self) -> memoryview:
        """Receives one answer, without its length; valid until the next one."""
        self._receive_into(self._buffer[:4])
        (size,) = struct.unpack_from(">i", self._buffer)
        if not 0 < size <= len(self._buffer):
            raise RawClientError(f"an answer of {size} bytes, at most {len(self._buffer)} were asked for")
        answer = self._buffer[:size]
        self._receive_into(answer)
        return answer

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def _receive_into(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = self._socket.recv_into(view[done:])
            if count == 0:
                raise RawClientError("the broker closed the connection")
            done += count


def produce(
    host: str, port: int, topic: str, partitions: int, batch: Batch, total_bytes: int, in_flight: int
) -> int:
    """Writes ``total_bytes`` with acks=all, one connection per partition; returns the bytes of batches written."""
    requests = [produce_request(topic, partition, batch) for partition in range(partitions)]
    connections = [Connection(host, port) for _ in range(partitions)]
    error_at = 4 + 4 + len(_string(topic)) + 4 + 4
    count = max(in_flight * partitions, total_bytes // len(batch.data))
    sent = received = 0
    try:
        while received < count:
            lane = sent % partitions
            if sent >= min(count, received + in_flight * partitions):
                lane = received % partitions
                _check(connections[lane].receive(), error_at)
                received += 1
            else:
                connections[lane].send(requests[lane])
                sent += 1
    finally:
        for connection in connections:
            connection.close()
    return count * len(batch.data)


def fetch(
    host: str, port: int, topic: str, partitions: int, batch: Batch, total_bytes: int, max_bytes: int
) -> int:
    """Reads ``total_bytes``, one connection per partition and one request in flight on each; returns the bytes.

    The log must hold nothing but copies of ``batch``: offsets are counted, not decoded. At its end it starts anew.
    """
    room = max_bytes + len(batch.data) + 4096
    connections = [Connection(host, port, room) for _ in range(partitions)]
    offsets = [0] * partitions
    header = 4 + 4 + 2 + 4 + 4 + len(_string(topic)) + 4
    done = 0
    try:
        for lane, connection in enumerate(connections):
            connection.send(fetch_request(topic, lane, 0, max_bytes))
        while done < total_bytes:
            for lane, connection in enumerate(connections):
                size, high_watermark = _fetched(connection.receive(), header)
                offsets[lane] += size // len(batch.data) * batch.records
                if offsets[lane] >= high_watermark:
                    offsets[lane] = 0
                done += size
                connection.send(fetch_request(topic, lane, offsets[lane], max_bytes))
        for connection in connections:
            _fetched(connection.receive(), header)
    finally:
        for connection in connections:
            connection.close()
    return done


def _check(answer: memoryview, error_at: int) -> None:
    (error_code,) = struct.unpack_from(">h", answer, error_at)
    if error_code != 0:
        raise RawClientError(f"Produce was answered with error code {error_code}")


def _fetched(answer: memoryview, header: int) -> tuple[int, int]:
    """Returns the record bytes of an answer and the high watermark."""
    (top_error,) = struct.unpack_from(">h", answer, 8)
    error, high_watermark = struct.unpack_from(">hq", answer, header + 4)
    if top_error != 0 or error != 0:
        raise RawClientError(f"Fetch was answered with error codes {top_error} and {error}")
    (aborted,) = struct.unpack_from(">i", answer, header + 30)
    (size,) = struct.unpack_from(">i", answer, header + 38 + 16 * max(aborted, 0))
    if size <= 0:
        raise RawClientError(f"Fetch was answered with {size} bytes of records, the log holds more")
    return int(size), int(high_watermark)
