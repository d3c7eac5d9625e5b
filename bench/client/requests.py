"""Whole requests as bytes, and the parsing of their answers.

Produce v7, Fetch v11, ListOffsets v1, CreateTopics v2 and Metadata v1 have no flexible fields, and every
current broker supports them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bench.client.batches import Batch
from rig.wire import METADATA, framed

PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 11
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 1
METADATA_VERSION = 1
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 2
CLIENT_ID = b"bench"
REQUEST_TIMEOUT_MS = 30_000
FETCH_WAIT_MS = 500
OFFSET_AND_LENGTH = struct.Struct(">qi")


class RawClientError(RuntimeError):
    """The broker answered with an error code, or with an unexpected layout."""

    def __init__(self, message: str, error_code: int = -1) -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition's answer: its high watermark, and the position of its records in the answer."""

    high_watermark: int
    start: int
    size: int


class FieldReader:
    """A reader of a message's fields, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def int16(self) -> int:
        """Two bytes."""
        return self._read(">h", 2)

    def int32(self) -> int:
        """Four bytes."""
        return self._read(">i", 4)

    def string(self) -> str:
        """A string; null is empty."""
        size = max(0, self.int16())
        self.at += size
        return self._data[self.at - size : self.at].decode()

    def blob(self) -> bytes:
        """Bytes; null is empty."""
        size = max(0, self.int32())
        self.at += size
        return self._data[self.at - size : self.at]

    def skip_array(self, element_bytes: int) -> None:
        """Skips an array of elements with a fixed size."""
        count = max(0, self.int32())
        self.at += count * element_bytes

    def _read(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self.at)
        self.at += size
        return int(value)


def string(text: str) -> bytes:
    """A string, preceded by its length."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def blob(data: bytes) -> bytes:
    """Bytes, preceded by their length."""
    return struct.pack(">i", len(data)) + data


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A whole request."""
    return framed(api_key, version, 1, body, CLIENT_ID)


def produce_request(topic: str, partition: int, batch: Batch, acks: int = -1) -> bytes:
    """One batch for one partition."""
    body = struct.pack(">hhii", -1, acks, REQUEST_TIMEOUT_MS, 1)
    body += string(topic) + struct.pack(">ii", 1, partition) + blob(batch.data)
    return request(PRODUCE, PRODUCE_VERSION, body)


def produced_error_at(topic: str) -> int:
    """The position of the error code in a Produce answer for one partition."""
    return 4 + 4 + len(string(topic)) + 4 + 4


def check_produced(answer: memoryview, error_at: int) -> None:
    """Raises for an error code at ``error_at`` in a Produce answer."""
    (error_code,) = struct.unpack_from(">h", answer, error_at)
    if error_code != 0:
        raise RawClientError(f"Produce was answered with error code {error_code}", error_code)


def fetch_request(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """Fetches one partition, without a fetch session; waits for one byte."""
    body = struct.pack(">iiiibii", -1, FETCH_WAIT_MS, 1, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + string(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    body += struct.pack(">i", 0) + string("")
    return request(FETCH, FETCH_VERSION, body)


def read_fetched(answer: memoryview, topic: str) -> Fetched:
    """Parses the answer of ``fetch_request``; raises for an error code."""
    header = 4 + 4 + 2 + 4 + 4 + len(string(topic)) + 4
    (top_error,) = struct.unpack_from(">h", answer, 8)
    error, high_watermark = struct.unpack_from(">hq", answer, header + 4)
    if top_error != 0 or error != 0:
        raise RawClientError(f"Fetch was answered with error codes {top_error} and {error}", error)
    (aborted,) = struct.unpack_from(">i", answer, header + 30)
    start = header + 42 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, start - 4)
    return Fetched(int(high_watermark), start, max(0, int(size)))


def batch_offsets(answer: memoryview, fetched: Fetched) -> list[int]:
    """The base offsets of all complete batches in an answer."""
    found, at, end = [], fetched.start, fetched.start + fetched.size
    while at + OFFSET_AND_LENGTH.size <= end:
        offset, length = OFFSET_AND_LENGTH.unpack_from(answer, at)
        at += OFFSET_AND_LENGTH.size + length
        if at <= end:
            found.append(offset)
    return found


def create_topic_request(topic: str, partitions: int) -> bytes:
    """Creates a topic with one replica."""
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
    return request(CREATE_TOPICS, CREATE_TOPICS_VERSION, body + struct.pack(">ib", REQUEST_TIMEOUT_MS, 0))


def end_offset_request(topic: str, partition: int) -> bytes:
    """Asks for one partition's end offset."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, -1)
    return request(LIST_OFFSETS, LIST_OFFSETS_VERSION, body)


def end_offset_error(answer: memoryview, topic: str) -> int:
    """The error code of the answer of ``end_offset_request``."""
    (error_code,) = struct.unpack_from(">h", answer, 4 + 4 + len(string(topic)) + 4 + 4)
    return int(error_code)


def metadata_request(topic: str) -> bytes:
    """Asks for one topic."""
    return request(METADATA, METADATA_VERSION, struct.pack(">i", 1) + string(topic))


def read_leaders(answer: bytes) -> dict[int, int]:
    """The port of each partition's leader in a Metadata answer; a partition without a leader is absent."""
    reader = FieldReader(answer, 4)
    ports = {}
    for _ in range(reader.int32()):
        node = reader.int32()
        reader.string()
        ports[node] = reader.int32()
        reader.string()
    reader.int32()
    leaders = {}
    for _ in range(reader.int32()):
        reader.int16()
        reader.string()
        reader.at += 1
        for _ in range(reader.int32()):
            reader.int16()
            partition, leader = reader.int32(), reader.int32()
            reader.skip_array(4)
            reader.skip_array(4)
            if leader in ports:
                leaders[partition] = ports[leader]
    return leaders
