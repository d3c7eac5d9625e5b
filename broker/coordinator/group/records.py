"""The records of __consumer_offsets, byte for byte as Kafka 3.9 writes them. Versions 0 to 4 are read.

Keys: OffsetCommit v0 and v1 (int16 version, group string, topic string, partition int32); GroupMetadata v2
(int16 version, group string).

Values of OffsetCommit: v0 offset, metadata, timestamp; v1 offset, metadata, commit and expire timestamps; v2
offset, metadata, commit timestamp; v3 offset, leader epoch, metadata, commit timestamp.

Values of GroupMetadata: v0 protocol type, generation, protocol, leader, members; v1 adds each member's
rebalance timeout, v2 the state's timestamp, v3 each member's instance id. v4 of both is v3 in the flexible
layout (KIP-915).

A null value is a tombstone. Pure: :mod:`.loader` reads the log and :mod:`.offsets_log` writes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordinator.common.records import MalformedRecord, element_count, open_value, told_as_malformed
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    Reader,
    pack_bytes,
    pack_nullable_string,
    pack_string,
)
from broker.record.header import NO_TIMESTAMP
from broker.utils.topic_partition import TopicPartition

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_GROUP_KEY_VERSION: Final = 2
_HIGHEST_VALUE_VERSION: Final = 4
_FLEXIBLE_FROM: Final = 4
# Encoded for every commit, so with as few calls as possible.
_KEY: Final = struct.Struct(">hh")
_OFFSET_V1: Final = struct.Struct(">hqh")
_OFFSET_V3: Final = struct.Struct(">hqih")


class OffsetKey(NamedTuple):
    """The key of one partition's committed offset in one group."""

    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The key of a group's metadata."""

    group_id: str


class OffsetAndMetadata(NamedTuple):
    """A committed offset. Timestamps are wall-clock ms. ``expire_timestamp_ms`` is set only by clients that
    send a retention time (OffsetCommit v2 to v4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as stored: its subscription under the selected protocol, and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as stored. Without members ``protocol`` and ``leader`` are None."""

    protocol_type: str
    generation_id: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...]


def encode_offset_key(group_id: str, partition: TopicPartition) -> bytes:
    topic, index = partition
    return _offset_keys_begin(group_id, topic) + INT32.pack(index)


@lru_cache(maxsize=64)  # a commit has one group and few topics
def _offset_keys_begin(group_id: str, topic: str) -> bytes:
    """The keys of all offsets of a group in a topic begin with this."""
    group, name = group_id.encode(), topic.encode()
    return b"".join((_KEY.pack(_OFFSET_KEY_VERSIONS[-1], len(group)), group, INT16.pack(len(name)), name))


def encode_group_key(group_id: str) -> bytes:
    return INT16.pack(_GROUP_KEY_VERSION) + pack_string(group_id)


def encode_offset_value(value: OffsetAndMetadata) -> bytes:
    """Encodes version 3, or version 1 if the client set an expiry time, which only that version has."""
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms is None:
        head = _OFFSET_V3.pack(3, value.offset, value.leader_epoch, len(metadata))
        return head + metadata + INT64.pack(value.commit_timestamp_ms)
    head = _OFFSET_V1.pack(1, value.offset, len(metadata))
    return head + metadata + INT64.pack(value.commit_timestamp_ms) + INT64.pack(value.expire_timestamp_ms)


def encode_group_value(group: GroupRecord) -> bytes:
    """Encodes version 3."""
    return (
        INT16.pack(3)
        + pack_string(group.protocol_type)
        + INT32.pack(group.generation_id)
        + pack_nullable_string(group.protocol)
        + pack_nullable_string(group.leader)
        + INT64.pack(group.state_timestamp_ms)
        + INT32.pack(len(group.members))
        + b"".join(_encode_member(member) for member in group.members)
    )


def _encode_member(member: MemberRecord) -> bytes:
    return (
        pack_string(member.member_id)
        + pack_nullable_string(member.group_instance_id)
        + pack_string(member.client_id)
        + pack_string(member.client_host)
        + INT32.pack(member.rebalance_timeout_ms)
        + INT32.pack(member.session_timeout_ms)
        + pack_bytes(member.subscription)
        + pack_bytes(member.assignment)
    )


@told_as_malformed
def decode_key(key: bytes) -> OffsetKey | GroupKey:
    """Raises :class:`MalformedRecord` for invalid keys and for other kinds of keys, such as those of the new
    group protocol.
    """
    reader = Reader(memoryview(key))
    version = reader.int16()
    if version in _OFFSET_KEY_VERSIONS:
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
    if version == _GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    raise MalformedRecord(f"unknown key version {version}")


@told_as_malformed
def decode_offset_value(value: bytes) -> OffsetAndMetadata:
    """Raises :class:`MalformedRecord`."""
    reader, version = open_value(value, _HIGHEST_VALUE_VERSION, _FLEXIBLE_FROM)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    return OffsetAndMetadata(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        None if expire_timestamp_ms == NO_TIMESTAMP else expire_timestamp_ms,
    )


@told_as_malformed
def decode_group_value(value: bytes) -> GroupRecord:
    """Raises :class:`MalformedRecord`."""
    reader, version = open_value(value, _HIGHEST_VALUE_VERSION, _FLEXIBLE_FROM)
    return GroupRecord(
        protocol_type=reader.string(),
        generation_id=reader.int32(),
        protocol=reader.nullable_string(),
        leader=reader.nullable_string(),
        state_timestamp_ms=reader.int64() if version >= 2 else NO_TIMESTAMP,
        members=tuple(_decode_member(reader, version) for _ in range(element_count(reader))),
    )


def _blob(reader: Reader) -> bytes:
    value = reader.nullable_bytes()
    if value is None:
        raise MalformedRecord("null where bytes must be")
    return bytes(value)


def _decode_member(reader: Reader, version: int) -> MemberRecord:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    first_timeout_ms = reader.int32()
    # Version 0 has one timeout for both.
    session_timeout_ms = reader.int32() if version >= 1 else first_timeout_ms
    subscription, assignment = _blob(reader), _blob(reader)
    reader.end_struct()
    return MemberRecord(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        first_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


@told_as_malformed
def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """The topics in a consumer's subscription (ConsumerProtocolSubscription, any version).

    Raises :class:`MalformedRecord`.
    """
    reader = Reader(memoryview(subscription))
    reader.int16()
    return frozenset([reader.string() for _ in range(element_count(reader))])
