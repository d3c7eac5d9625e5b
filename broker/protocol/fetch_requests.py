"""Decodes Fetch requests without kio, because they are frequent: a consumer sends one for each answer, a
follower one for every few batches.

The layouts are from Kafka 3.9's FetchRequest, versions 0 to 17.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeVar

from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import ProtocolError, TooManyElements
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.protocol.primitives import FlexibleReader, Reader

TopicKey = uuid.UUID | str
Partition = TypeVar("Partition")
# (index, current leader epoch, offset, last fetched epoch, log start offset, max bytes); -1 if the version
# has none.
AskedPartition = tuple[int, int, int, int, int, int]

BATCHES_FROM: Final = 4
"""The first version whose readers know record batches (magic 2). Older ones get messages of magic 0 and 1."""
_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_REPLICA_STATE_FROM: Final = 15
_HEAD: Final = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_HEAD_V3: Final = Struct(">iii")
_HEAD_V0: Final = Struct(">ii")
_NO_LIMIT: Final = (1 << 31) - 1
_SESSION: Final = Struct(">ii")
_REPLICA_STATE: Final = Struct(">iq")
_REPLICA_STATE_TAG: Final = 1
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqiB")  # with the number of tags
NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
CONSUMER_REPLICA_ID: Final = -1
#: The isolation level of a consumer that reads only records whose transactions are decided. The only other is 0.
READ_COMMITTED: Final = 1
DEBUGGING_REPLICA_ID: Final = -2
"""Of Kafka's ReplicaVerificationTool, which reads every replica."""


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request. Topics, also the forgotten ones, are given by name before version 13, by topic id from
    then on. ``replica_id`` is negative for consumers, ``replica_epoch`` is -1 if absent. ``max_bytes`` has no
    limit before version 3. ``rack`` is the client's, empty if it has none. Times are in milliseconds.
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[AskedPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]
    by_topic_id: bool
    rack: str = ""

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0


def parse_fetch_request(body: memoryview, version: int, most: int = sys.maxsize) -> FetchRequest:
    """Decodes a request. Bytes after it are ignored, as in Kafka. Raises :class:`ProtocolError` if it is
    truncated, :class:`TooManyElements` if its arrays of topics and partitions have more than ``most``
    elements in total.
    """
    try:
        return _parse(body, version, most)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"truncated Fetch v{version}: {error}") from error


def _parse(body: memoryview, version: int, most: int) -> FetchRequest:
    flexible = version >= _FLEXIBLE_FROM
    reader = FlexibleReader(body) if flexible else Reader(body)
    replica_id, replica_epoch = CONSUMER_REPLICA_ID, NO_EPOCH
    if version < _REPLICA_STATE_FROM:
        replica_id = reader.int32()
    if version >= BATCHES_FROM:
        wait_ms, min_bytes, max_bytes, isolation = reader.fields(_HEAD)
    else:
        isolation, max_bytes = 0, _NO_LIMIT
        if version == 3:
            wait_ms, min_bytes, max_bytes = reader.fields(_HEAD_V3)
        else:
            wait_ms, min_bytes = reader.fields(_HEAD_V0)
    session_id, epoch = reader.fields(_SESSION) if version >= 7 else (NO_SESSION, FINAL_EPOCH)
    by_topic_id = version >= _TOPIC_IDS_FROM
    key: Callable[[Reader], TopicKey] = Reader.uuid if by_topic_id else Reader.string
    topics = _topics(reader, key, _asked_partition(version), most)
    forgotten = _topics(reader, key, Reader.int32, most) if version >= 7 else []
    rack = reader.string() if version >= 11 else ""
    if flexible:
        for tag, position in reader.tags():
            if tag == _REPLICA_STATE_TAG and version >= _REPLICA_STATE_FROM:
                replica_id, replica_epoch = _REPLICA_STATE.unpack_from(body, position)
    return FetchRequest(
        replica_id,
        replica_epoch,
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        topics,
        forgotten,
        by_topic_id,
        rack,
    )


def _topics(
    reader: Reader,
    read_key: Callable[[Reader], TopicKey],
    read_partition: Callable[[Reader], Partition],
    most: int,
) -> list[tuple[TopicKey, list[Partition]]]:
    topics = []
    topic_count = _length(reader)
    left = most - topic_count
    for _ in range(topic_count):
        key = read_key(reader)
        left -= (count := _length(reader))
        if left < 0:
            raise TooManyElements(f"Fetch of more than {most} topics and partitions")
        topics.append((key, [read_partition(reader) for _ in range(count)]))
        reader.end_struct()
    return topics


def _length(reader: Reader) -> int:
    length = reader.array_length()
    if length < 0:
        raise ProtocolError("null where an array must be")
    return length


def _asked_partition(version: int) -> Callable[[Reader], AskedPartition]:
    if version >= _FLEXIBLE_FROM:
        return _partition_v12
    if version >= 9:
        return _partition_v9
    return _partition_v5 if version >= 5 else _partition_v4


def _partition_v4(reader: Reader) -> AskedPartition:
    index, offset, most = reader.fields(_PARTITION_V4)
    return index, NO_EPOCH, offset, NO_EPOCH, UNKNOWN_OFFSET, most


def _partition_v5(reader: Reader) -> AskedPartition:
    index, offset, start, most = reader.fields(_PARTITION_V5)
    return index, NO_EPOCH, offset, NO_EPOCH, start, most


def _partition_v9(reader: Reader) -> AskedPartition:
    index, epoch, offset, start, most = reader.fields(_PARTITION_V9)
    return index, epoch, offset, NO_EPOCH, start, most


def _partition_v12(reader: Reader) -> AskedPartition:
    index, epoch, offset, last_epoch, start, most, tags = reader.fields(_PARTITION_V12)
    if tags:
        reader.position -= 1
        reader.end_struct()
    return index, epoch, offset, last_epoch, start, most
