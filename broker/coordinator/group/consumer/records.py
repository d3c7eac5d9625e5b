"""The records of consumer groups in __consumer_offsets (KIP-848), byte for byte as Kafka writes them.

Keys have Kafka's old encoding, each with its version first: 3 ConsumerGroupMetadata, 4 PartitionMetadata,
5 MemberMetadata, 6 TargetAssignmentMetadata, 7 TargetAssignmentMember, 8 CurrentMemberAssignment, 16
RegularExpression. Values are of version 0, in the flexible encoding. Unknown tagged fields are skipped, such as
those of a later Kafka. The metadata hash of Kafka 4.1 is kept out: Kafka then computes it again.

A null value is a tombstone. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from broker.coordinator.common.records import MalformedRecord, element_count, open_value, told_as_malformed
from broker.coordinator.group.consumer.assignors import Assignment
from broker.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    FlexibleReader,
    Reader,
    pack_compact_nullable_string,
    pack_string,
    write_uvarint,
)

_VERSION: Final = INT16.pack(0)
_NO_TAGS: Final = b"\x00"
_CLASSIC_TAG: Final = 0
#: A null in the tagged field ClassicMemberMetadata: one field, tag 0, of one byte. Kafka writes it, because to Kafka a
#: member without the field is a classic one: the field's default is an empty struct, whatever its schema says.
_NOT_CLASSIC: Final = b"\x01\x00\x01\x00"


class KeyKind(IntEnum):
    """The kinds of keys; the numbers are their versions."""

    GROUP_METADATA = 3
    PARTITION_METADATA = 4
    MEMBER_METADATA = 5
    TARGET_METADATA = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8
    REGULAR_EXPRESSION = 16


#: Kafka reads the tombstones of a member and of a group in this order only.
TOMBSTONE_ORDER: Final = (
    KeyKind.CURRENT_MEMBER,
    KeyKind.TARGET_MEMBER,
    KeyKind.MEMBER_METADATA,
    KeyKind.REGULAR_EXPRESSION,
    KeyKind.TARGET_METADATA,
    KeyKind.PARTITION_METADATA,
    KeyKind.GROUP_METADATA,
)
_WITH_NAME: Final = frozenset(
    {KeyKind.MEMBER_METADATA, KeyKind.TARGET_MEMBER, KeyKind.CURRENT_MEMBER, KeyKind.REGULAR_EXPRESSION}
)

_KEY_VERSIONS: Final = frozenset(INT16.pack(kind) for kind in KeyKind)


class ConsumerGroupKey(NamedTuple):
    """The key of a record. ``name`` is the member id, or the regular expression; empty for the other kinds."""

    kind: KeyKind
    group_id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A subscribed topic with its number of partitions."""

    topic_id: uuid.UUID
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ClassicMemberRecord:
    """What is stored of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberMetadataRecord:
    """A member's ids, client and subscription. ``subscribed_regex`` is empty if there is none, as Kafka writes it."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    subscribed_regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberRecord | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignmentRecord:
    """A member's epochs, state and partitions."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment
    pending_revocation: Assignment


@dataclass(frozen=True, slots=True)
class ResolvedRegexRecord:
    """The topics that a regular expression matched at a time, with the version of the metadata."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


def is_of_consumer_group(key: bytes) -> bool:
    """Whether the key is one of these, by its version."""
    return key[:2] in _KEY_VERSIONS


def encode_key(key: ConsumerGroupKey) -> bytes:
    name = pack_string(key.name) if key.kind in _WITH_NAME else b""
    return INT16.pack(key.kind) + pack_string(key.group_id) + name


@told_as_malformed
def decode_key(key: bytes) -> ConsumerGroupKey:
    """Raises :class:`MalformedRecord`, also for other kinds of keys."""
    reader = Reader(memoryview(key))
    version = reader.int16()
    try:
        kind = KeyKind(version)
    except ValueError as error:
        raise MalformedRecord(f"unknown key version {version}") from error
    return ConsumerGroupKey(kind, reader.string(), reader.string() if kind in _WITH_NAME else "")


def encode_epoch(epoch: int) -> bytes:
    """A value with only an epoch: of GROUP_METADATA and of TARGET_METADATA."""
    return _VERSION + INT32.pack(epoch) + _NO_TAGS


@told_as_malformed
def decode_epoch(value: bytes) -> int:
    """Raises :class:`MalformedRecord`."""
    reader = _open(value)
    epoch = reader.int32()
    reader.end_struct()
    return epoch


def encode_topics(topics: Iterable[TopicRecord]) -> bytes:
    """The value of PARTITION_METADATA, without racks, which Kafka 4 no longer uses."""
    encoded = [
        topic.topic_id.bytes
        + _string(topic.name)
        + INT32.pack(topic.partitions)
        + write_uvarint(1)  # no racks
        + _NO_TAGS
        for topic in topics
    ]
    return _VERSION + _array(encoded) + _NO_TAGS


@told_as_malformed
def decode_topics(value: bytes) -> tuple[TopicRecord, ...]:
    """Raises :class:`MalformedRecord`."""
    reader = _open(value)
    topics = tuple([_topic(reader) for _ in range(element_count(reader))])
    reader.end_struct()
    return topics


def _topic(reader: Reader) -> TopicRecord:
    topic = TopicRecord(reader.uuid(), reader.string(), reader.int32())
    for _ in range(element_count(reader)):
        reader.int32()
        for _ in range(element_count(reader)):
            reader.string()
        reader.end_struct()
    reader.end_struct()
    return topic


def encode_member(member: MemberMetadataRecord) -> bytes:
    return b"".join(
        (
            _VERSION,
            _string(member.instance_id),
            _string(member.rack_id),
            _string(member.client_id),
            _string(member.client_host),
            _array([_string(name) for name in member.subscribed_names]),
            _string(member.subscribed_regex),
            INT32.pack(member.rebalance_timeout_ms),
            _string(member.server_assignor),
            _NOT_CLASSIC if member.classic is None else _classic_tag(member.classic),
        )
    )


def _classic_tag(classic: ClassicMemberRecord) -> bytes:
    """The tagged field. Like every struct that may be null, its bytes begin with 1."""
    protocols = [
        _string(name) + write_uvarint(len(metadata) + 1) + metadata + _NO_TAGS
        for name, metadata in classic.protocols
    ]
    body = b"\x01" + INT32.pack(classic.session_timeout_ms) + _array(protocols) + _NO_TAGS
    return write_uvarint(1) + write_uvarint(_CLASSIC_TAG) + write_uvarint(len(body)) + body


@told_as_malformed
def decode_member(value: bytes) -> MemberMetadataRecord:
    """Without the classic field it is a member of the consumer protocol: Kafka leaves it out for a classic one without
    protocols only, which there is not. The regular expression may be null: earlier releases wrote none so.

    Raises :class:`MalformedRecord`.
    """
    reader = _open(value)
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    names = tuple([reader.string() for _ in range(element_count(reader))])
    regex, rebalance_timeout_ms = reader.nullable_string() or "", reader.int32()
    server_assignor = reader.nullable_string()
    classic = None
    for tag, position in reader.tags():
        if tag == _CLASSIC_TAG:
            classic = _classic(FlexibleReader(reader.body[position:]))
    return MemberMetadataRecord(
        instance_id,
        rack_id,
        client_id,
        client_host,
        names,
        regex,
        rebalance_timeout_ms,
        server_assignor,
        classic,
    )


def _classic(reader: Reader) -> ClassicMemberRecord | None:
    if reader.take(1)[0] != 1:
        return None
    session_timeout_ms = reader.int32()
    return ClassicMemberRecord(
        session_timeout_ms, tuple([_classic_protocol(reader) for _ in range(element_count(reader))])
    )


def _classic_protocol(reader: Reader) -> tuple[str, bytes]:
    name, metadata = reader.string(), reader.nullable_bytes()
    if metadata is None:
        raise MalformedRecord("null where bytes must be")
    reader.end_struct()
    return name, bytes(metadata)


def encode_target(assignment: Assignment) -> bytes:
    """The value of TARGET_MEMBER."""
    return _VERSION + _assignment(assignment) + _NO_TAGS


@told_as_malformed
def decode_target(value: bytes) -> Assignment:
    """Raises :class:`MalformedRecord`."""
    reader = _open(value)
    assignment = _read_assignment(reader)
    reader.end_struct()
    return assignment


def encode_current(current: CurrentAssignmentRecord) -> bytes:
    return b"".join(
        (
            _VERSION,
            INT32.pack(current.member_epoch),
            INT32.pack(current.previous_epoch),
            bytes((current.state,)),
            _assignment(current.assigned),
            _assignment(current.pending_revocation),
            _NO_TAGS,
        )
    )


@told_as_malformed
def decode_current(value: bytes) -> CurrentAssignmentRecord:
    """Raises :class:`MalformedRecord`."""
    reader = _open(value)
    epochs = reader.int32(), reader.int32()
    current = CurrentAssignmentRecord(
        *epochs, reader.take(1)[0], _read_assignment(reader), _read_assignment(reader)
    )
    reader.end_struct()
    return current


def encode_regex(resolved: ResolvedRegexRecord) -> bytes:
    return b"".join(
        (
            _VERSION,
            _array([_string(name) for name in resolved.topics]),
            INT64.pack(resolved.version),
            INT64.pack(resolved.timestamp_ms),
            _NO_TAGS,
        )
    )


@told_as_malformed
def decode_regex(value: bytes) -> ResolvedRegexRecord:
    """Raises :class:`MalformedRecord`."""
    reader = _open(value)
    topics = tuple([reader.string() for _ in range(element_count(reader))])
    resolved = ResolvedRegexRecord(topics, reader.int64(), reader.int64())
    reader.end_struct()
    return resolved


def _open(value: bytes) -> Reader:
    return open_value(value, highest=0, flexible_from=0)[0]


_string = pack_compact_nullable_string


def _array(elements: list[bytes]) -> bytes:
    return write_uvarint(len(elements) + 1) + b"".join(elements)


def _assignment(assignment: Assignment) -> bytes:
    return _array(
        [
            topic.bytes
            + write_uvarint(len(numbers) + 1)
            + b"".join(INT32.pack(number) for number in sorted(numbers))
            + _NO_TAGS
            for topic, numbers in sorted(assignment.items())
        ]
    )


def _read_assignment(reader: Reader) -> Assignment:
    return dict([_topic_partitions(reader) for _ in range(element_count(reader))])


def _topic_partitions(reader: Reader) -> tuple[uuid.UUID, frozenset[int]]:
    topic = reader.uuid()
    numbers = frozenset([reader.int32() for _ in range(element_count(reader))])
    reader.end_struct()
    return topic, numbers
