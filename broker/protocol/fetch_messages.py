"""Fetch responses, encoded and decoded without kio: packed with ``struct`` around file regions. Followers
read them without copying records.

The layouts are from Kafka 3.9's FetchResponse, versions 0 to 17.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, final

from broker.protocol.errors import Errors, ProtocolError, TooManyElements
from broker.protocol.fetch_requests import BATCHES_FROM, TopicKey
from broker.protocol.framing import response_prefix
from broker.protocol.leader_tags import NodeEndpoint, endpoints_section, leader_field
from broker.protocol.primitives import MAX_TAGS, read_uvarint, skip_tags, write_uvarint
from broker.utils.file_region import FileRegion

FETCH: Final = 1
_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_ENDPOINTS_FROM: Final = 16
# The most topics and partitions in a leader's response, more than any follower follows. Also the most aborted
# transactions of one partition.
_MOST_ANSWERED: Final = 400_000
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION_V0: Final = Struct(">ihq")
_PARTITION_V4: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_DIVERGING_TAG: Final = Struct(">BBiqB")
_SESSION: Final = Struct(">ihi")
_EPOCH_AND_END: Final = Struct(">iq")
_NO_ID: Final = bytes(16)
_NO_ABORTED: Final = _INT32.pack(-1)
_ABORTED: Final = Struct(">qq")
_PARTITION_NONE_ABORTED: Final = Struct(">ihqqqBi")  # with no aborted transactions, and the preferred replica


class FetchedPartition:
    """A partition of a Fetch response. ``records`` is what to send, or None. ``diverging`` is (epoch, end
    offset) for followers (KIP-595). ``leader`` is (id, epoch) if another broker leads. ``aborted`` are aborted
    transactions as (producer id, first offset, ...), None for a reader that did not ask for them. ``preferred``
    is the replica from which the consumer should read instead (KIP-392), -1 for this one.
    """

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "partition",
        "preferred",
        "records",
    )

    def __init__(
        self,
        partition: int,
        error: Errors,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        *,
        records: FileRegion | None = None,
        diverging: tuple[int, int] | None = None,
        leader: tuple[int, int] | None = None,
        aborted: Sequence[tuple[int, int, int, int]] | None = None,
        preferred: int = -1,
    ) -> None:
        self.partition = partition
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.diverging = diverging
        self.leader = leader
        self.aborted = aborted
        self.preferred = preferred


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Mapping[TopicKey, Sequence[FetchedPartition]],
    error: Errors = Errors.NONE,
    session_id: int = 0,
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes | FileRegion]:
    """Encodes a whole response frame, including its length, as bytes and file regions in the order to send.

    Topics go by name before version 13 and by topic id from then on; "" stands for no id. ``endpoints`` are those of
    the partitions' leaders, for version 16 and later.
    """
    encoder = (
        _FlexibleEncoder(version)
        if version >= _FLEXIBLE_FROM
        else _Encoder(version)
        if version >= BATCHES_FROM
        else _OldestEncoder(version)
    )
    encoder.head(error, session_id, throttle_ms, len(topics))
    for topic, partitions in topics.items():
        encoder.topic(topic, len(partitions))
        for partition in partitions:
            encoder.partition(partition)
        encoder.end_struct()
    encoder.end(endpoints)
    return encoder.frame(correlation_id)


class _Encoder:
    """The old encoding, versions 4 to 11. It collects bytes until a file region has to come between them."""

    __slots__ = ("_payload", "_pending", "_regions_size", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._pending: list[bytes] = []
        self._payload: list[bytes | FileRegion] = []
        self._regions_size = 0

    def head(self, error: Errors, session_id: int, throttle_ms: int, topics: int) -> None:
        if self._version >= 7:
            self._pending.append(_SESSION.pack(throttle_ms, error, session_id))
        elif self._version >= 1:
            self._pending.append(_INT32.pack(throttle_ms))
        self.array(topics)

    def array(self, length: int) -> None:
        self._pending.append(_INT32.pack(length))

    def topic(self, topic: TopicKey, partitions: int) -> None:
        assert isinstance(topic, str)
        name = topic.encode()
        self._pending += (_INT16.pack(len(name)), name)
        self.array(partitions)

    def partition(self, partition: FetchedPartition) -> None:
        self.fixed(partition)
        self.aborted(partition)
        if self._version >= 11:
            self._pending.append(_INT32.pack(partition.preferred))
        self.records(partition.records)

    def aborted(self, partition: FetchedPartition) -> None:
        if partition.aborted is None:
            self._pending.append(_NO_ABORTED)
        else:
            self.array(len(partition.aborted))
            self._pending += [_ABORTED.pack(each[0], each[1]) for each in partition.aborted]

    def fixed(self, partition: FetchedPartition) -> None:
        if self._version >= 5:
            head = _PARTITION_V5.pack(
                partition.partition,
                partition.error,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
            )
        else:
            head = _PARTITION_V4.pack(
                partition.partition, partition.error, partition.high_watermark, partition.last_stable_offset
            )
        self._pending.append(head)

    def records(self, region: FileRegion | None) -> None:
        self._pending.append(_INT32.pack(0 if region is None else region.size))
        self.region(region)

    def region(self, region: FileRegion | None) -> None:
        if region is not None and region.size:
            self._payload.append(b"".join(self._pending))
            self._pending.clear()
            self._payload.append(region)
            self._regions_size += region.size

    def end_struct(self) -> None:
        """Writes nothing: there are no tags before version 12."""

    def end(self, endpoints: Sequence[NodeEndpoint]) -> None:
        """Writes nothing, as :meth:`end_struct`."""

    def frame(self, correlation_id: int) -> list[bytes | FileRegion]:
        if self._pending:
            self._payload.append(b"".join(self._pending))
        size = self._regions_size + sum(len(part) for part in self._payload if isinstance(part, bytes))
        first = self._payload[0]
        prefix = response_prefix(FETCH, self._version, correlation_id, size)
        self._payload[0] = prefix + first if isinstance(first, bytes) else prefix
        return self._payload


class _OldestEncoder(_Encoder):
    """The encoding of versions 0 to 3, without anything about transactions."""

    __slots__ = ()

    def fixed(self, partition: FetchedPartition) -> None:
        self._pending.append(
            _PARTITION_V0.pack(partition.partition, partition.error, partition.high_watermark)
        )

    def aborted(self, partition: FetchedPartition) -> None:
        """Writes nothing: these readers get the records of aborted transactions, too."""

    def converted(self, partition: FetchedPartition, messages: bytes) -> None:
        """A partition with ``messages`` in place of its records."""
        self.fixed(partition)
        self._pending.append(_INT32.pack(len(messages)))
        if messages:
            self._payload += (b"".join(self._pending), messages)
            self._pending.clear()


def encode_converted(
    version: int,
    correlation_id: int,
    topics: Mapping[TopicKey, Sequence[tuple[FetchedPartition, bytes]]],
) -> list[bytes | FileRegion]:
    """As :func:`encode_fetch_response`, for versions 0 to 3, with the messages of each partition."""
    encoder = _OldestEncoder(version)
    encoder.head(Errors.NONE, 0, 0, len(topics))
    for topic, partitions in topics.items():
        encoder.topic(topic, len(partitions))
        for partition, messages in partitions:
            encoder.converted(partition, messages)
    return encoder.frame(correlation_id)


class _FlexibleEncoder(_Encoder):
    """The compact encoding, versions 12 to 17."""

    __slots__ = ()

    def array(self, length: int) -> None:
        self._pending.append(write_uvarint(length + 1))

    def topic(self, topic: TopicKey, partitions: int) -> None:
        if self._version >= _TOPIC_IDS_FROM:
            self._pending.append(topic.bytes if isinstance(topic, uuid.UUID) else _NO_ID)
        else:
            assert isinstance(topic, str)
            name = topic.encode()
            self._pending += (write_uvarint(len(name) + 1), name)
        self.array(partitions)

    def partition(self, partition: FetchedPartition) -> None:
        pending, aborted, region = self._pending, partition.aborted, partition.records
        if aborted is None:
            pending.append(
                _PARTITION_NONE_ABORTED.pack(
                    partition.partition,
                    partition.error,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    0,
                    partition.preferred,
                )
            )
        else:
            self.fixed(partition)
            self.array(len(aborted))
            pending += [_ABORTED.pack(each[0], each[1]) + b"\0" for each in aborted]
            pending.append(_INT32.pack(partition.preferred))
        pending.append(write_uvarint(1 if region is None else region.size + 1))
        self.region(region)
        has_tags = partition.diverging is not None or partition.leader is not None
        pending.append(_partition_tags(partition) if has_tags else b"\0")

    def end_struct(self) -> None:
        self._pending.append(b"\0")

    def end(self, endpoints: Sequence[NodeEndpoint]) -> None:
        has_tags = endpoints and self._version >= _ENDPOINTS_FROM
        self._pending.append(endpoints_section(endpoints) if has_tags else b"\0")


def _partition_tags(partition: FetchedPartition) -> bytes:
    fields = []
    if partition.diverging is not None:
        fields.append(_DIVERGING_TAG.pack(0, 13, *partition.diverging, 0))
    if partition.leader is not None:
        fields.append(leader_field(1, *partition.leader))
    return bytes((len(fields),)) + b"".join(fields)


@final
class ReceivedPartition:
    """What a follower received for one partition; ``records`` is a view of the received frame."""

    __slots__ = (
        "diverging",
        "error",
        "high_watermark",
        "log_start_offset",
        "partition",
        "records",
        "topic_id",
    )

    def __init__(  # noqa: PLR0917 - one for each partition of a response
        self,
        topic_id: uuid.UUID,
        partition: int,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        diverging: tuple[int, int] | None,
        records: memoryview,
    ) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.error = error
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.diverging = diverging
        self.records = records


@dataclass(frozen=True, slots=True)
class ReceivedFetch:
    """A Fetch response that a follower received."""

    error: int
    session_id: int
    partitions: list[ReceivedPartition]


def parse_fetch_response(body: memoryview) -> ReceivedFetch:
    """Reads the body of a Fetch response of version 13 to 17. Raises :class:`ProtocolError` for
    anything else.
    """
    try:
        _throttle_ms, error, session_id = _SESSION.unpack_from(body)
        count, position = read_uvarint(body, _SESSION.size)
        partitions: list[ReceivedPartition] = []
        left = _MOST_ANSWERED - count
        for _ in range(count - 1):
            topic_id = uuid.UUID(bytes=bytes(body[position : position + 16]))
            inner, position = read_uvarint(body, position + 16)
            left -= inner
            if left < 0:
                raise TooManyElements(f"a Fetch response of more than {_MOST_ANSWERED} topics and partitions")
            for _ in range(inner - 1):
                received, position = _parse_partition(body, position, topic_id)
                partitions.append(received)
            position = skip_tags(body, position)
        skip_tags(body, position)
    except (struct_error, IndexError, ValueError) as error_:
        raise ProtocolError(f"truncated Fetch response: {error_}") from error_
    return ReceivedFetch(error, session_id, partitions)


def _parse_partition(body: memoryview, position: int, topic_id: uuid.UUID) -> tuple[ReceivedPartition, int]:
    index, error, high_watermark, _stable, log_start = _PARTITION_V5.unpack_from(body, position)
    aborted, position = read_uvarint(body, position + _PARTITION_V5.size)
    if aborted > 1:  # followers do not request them
        position = _skip_aborted(body, position, aborted - 1)
    size, position = read_uvarint(body, position + 4)
    size = max(size - 1, 0)
    records = body[position : position + size]
    if len(records) != size:
        raise ProtocolError(f"Fetch response announced {size} record bytes, {len(records)} came")
    diverging, position = _parse_tags(body, position + size)
    return ReceivedPartition(topic_id, index, error, high_watermark, log_start, diverging, records), position


def _skip_aborted(body: memoryview, position: int, count: int) -> int:
    if count > _MOST_ANSWERED:
        raise TooManyElements(f"a Fetch response of more than {_MOST_ANSWERED} aborted transactions")
    for _ in range(count):
        position = skip_tags(body, position + 16)
    return position


def _parse_tags(body: memoryview, position: int) -> tuple[tuple[int, int] | None, int]:
    diverging = None
    count, position = read_uvarint(body, position)
    if not count:
        return None, position
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields")
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        if tag == 0:
            epoch, end_offset = _EPOCH_AND_END.unpack_from(body, position)
            diverging = (epoch, end_offset)
        position += size
    return diverging, position


class WantedPartition(NamedTuple):
    """A partition in a follower's Fetch request."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


def encode_follower_fetch(
    replica_id: int,
    replica_epoch: int,
    topics: Sequence[tuple[uuid.UUID, Sequence[WantedPartition]]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[uuid.UUID, Sequence[int]]] = (),
) -> bytes:
    """Encodes the body of a follower's Fetch request, version 17. It has no session unless one is
    given (KIP-227).
    """
    head = _FETCH_HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch)
    parts = [head, write_uvarint(len(topics) + 1)]
    for topic_id, partitions in topics:
        parts += (topic_id.bytes, write_uvarint(len(partitions) + 1))
        parts += [
            _FETCH_PARTITION.pack(
                wanted.partition,
                wanted.current_leader_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.log_start_offset,
                partition_max_bytes,
                0,
            )
            for wanted in partitions
        ]
        parts.append(b"\0")
    parts.append(write_uvarint(len(forgotten) + 1))
    for topic_id, indexes in forgotten:
        parts += (topic_id.bytes, write_uvarint(len(indexes) + 1), *map(_INT32.pack, indexes), b"\0")
    parts.append(_FETCH_TAIL.pack(1, 1, 1, 13, replica_id, replica_epoch, 0))
    return b"".join(parts)


_FETCH_HEAD: Final = Struct(">iiibii")
_FETCH_PARTITION: Final = Struct(">iiqiqiB")
# An empty rack, and one tag: ReplicaState.
_FETCH_TAIL: Final = Struct(">BBBBiqB")
