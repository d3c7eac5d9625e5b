"""The records of consumer groups: byte for byte as Kafka's schemas say, and readable with a later Kafka's tags."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.consumer.group import metadata_of
from broker.coordinator.group.consumer.member import ConsumerMember
from broker.coordinator.group.consumer.records import (
    ClassicMemberRecord,
    ConsumerGroupKey,
    CurrentAssignmentRecord,
    KeyKind,
    MemberMetadataRecord,
    ResolvedRegexRecord,
    TopicRecord,
    decode_current,
    decode_epoch,
    decode_key,
    decode_member,
    decode_regex,
    decode_target,
    decode_topics,
    encode_current,
    encode_epoch,
    encode_key,
    encode_member,
    encode_regex,
    encode_target,
    encode_topics,
)

TOPIC = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
ID = TOPIC.bytes
MEMBER = MemberMetadataRecord(None, "r1", "cl", "/1.1.1.1", ("t", "u"), "", 300_000, "uniform")

texts = st.text(st.characters(codec="utf-8"), max_size=200)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
assignments = st.dictionaries(st.uuids(), st.frozensets(int32, max_size=140), max_size=3)
classics = st.builds(
    ClassicMemberRecord, int32, st.lists(st.tuples(texts, st.binary(max_size=200)), max_size=3).map(tuple)
)
names = st.lists(texts, max_size=3).map(tuple)
metadata = st.builds(
    MemberMetadataRecord,
    st.none() | texts,
    st.none() | texts,
    texts,
    texts,
    names,
    texts,
    int32,
    st.none() | texts,
    st.none() | classics,
)
DECODERS = (
    decode_key,
    decode_epoch,
    decode_topics,
    decode_member,
    decode_target,
    decode_current,
    decode_regex,
)


@pytest.mark.parametrize(
    ("kind", "version", "named"),
    [
        (KeyKind.GROUP_METADATA, 3, False),
        (KeyKind.PARTITION_METADATA, 4, False),
        (KeyKind.MEMBER_METADATA, 5, True),
        (KeyKind.TARGET_METADATA, 6, False),
        (KeyKind.TARGET_MEMBER, 7, True),
        (KeyKind.CURRENT_MEMBER, 8, True),
        (KeyKind.REGULAR_EXPRESSION, 16, True),
    ],
)
def test_keys_are_byte_for_byte_kafkas(kind, version, named):
    key = ConsumerGroupKey(kind, "g", "abc" if named else "")
    encoded = struct.pack(">hh", version, 1) + b"g" + (b"\0\x03abc" if named else b"")
    assert encode_key(key) == encoded
    assert decode_key(encoded) == key


def test_epochs_are_byte_for_byte_kafkas():
    assert encode_epoch(7) == b"\0\0" + b"\0\0\0\x07" + b"\0"
    assert decode_epoch(encode_epoch(7)) == 7


def test_the_metadata_hash_of_kafka_4_1_is_skipped():
    assert decode_epoch(b"\0\0" + b"\0\0\0\x07" + b"\x01\0\x08" + bytes(8)) == 7


def test_subscribed_topics_are_byte_for_byte_kafkas():
    topics = (TopicRecord(TOPIC, "t", 3),)
    encoded = b"\0\0" + b"\x02" + ID + b"\x02t" + b"\0\0\0\x03" + b"\x01" + b"\0" + b"\0"
    assert encode_topics(topics) == encoded
    assert decode_topics(encoded) == topics


def test_the_racks_of_partitions_are_skipped():
    racks = b"\x02" + b"\0\0\0\0" + b"\x03\x02a\x02b" + b"\0"
    encoded = b"\0\0" + b"\x02" + ID + b"\x02t" + b"\0\0\0\x03" + racks + b"\0" + b"\0"
    assert decode_topics(encoded) == (TopicRecord(TOPIC, "t", 3),)


def test_members_are_byte_for_byte_kafkas():
    encoded = (
        b"\0\0"
        b"\0"  # no instance id
        b"\x03r1"
        b"\x03cl"
        b"\x09/1.1.1.1"
        b"\x03\x02t\x02u"
        b"\x01" + struct.pack(">i", 300_000) + b"\x08uniform"  # an empty regular expression
        b"\x01\0\x01\0"  # one tagged field, which is null
    )
    assert encode_member(MEMBER) == encoded
    assert decode_member(encoded) == MEMBER


def test_a_member_of_the_consumer_protocol_is_as_kafka_4_1_writes_it():
    """It has an empty regular expression, not null. Without its tagged field, which is null, Kafka 3.9 and 4.1 take it
    for a member of the classic protocol.
    """
    written = bytes.fromhex("000000000263032f6802027401000000010001000100")  # by Kafka 4.1.1's coordinator
    member = MemberMetadataRecord(None, None, "c", "/h", ("t",), "", 1, None)
    joined = ConsumerMember(
        "m", client_id="c", client_host="/h", rebalance_timeout_ms=1, subscribed_names=frozenset({"t"})
    )
    assert encode_member(metadata_of(joined)) == written
    assert encode_member(member) == written
    assert decode_member(written) == member
    assert decode_member(written[:-4] + b"\0") == member


def test_a_null_in_place_of_a_regular_expression_is_none():
    """Its schema allows it, and Landline wrote it up to 0.4."""
    written = bytes.fromhex("000000000263032f6802027400000000010001000100")
    assert decode_member(written).subscribed_regex == ""


def test_a_classic_member_is_a_tagged_struct_that_may_be_null():
    classic = ClassicMemberRecord(6_000, (("range", b"xy"),))
    body = b"\x01" + struct.pack(">i", 6_000) + b"\x02" + b"\x06range" + b"\x03xy" + b"\0" + b"\0"
    member = MemberMetadataRecord("i", None, "", "", (), "a.*", -1, None, classic)
    encoded = (
        b"\0\0" + b"\x02i" + b"\0" + b"\x01\x01" + b"\x01" + b"\x04a.*" + b"\xff\xff\xff\xff" + b"\0"
        + b"\x01\0" + bytes([len(body)]) + body
    )  # fmt: skip
    assert encode_member(member) == encoded
    assert decode_member(encoded) == member


def test_assignments_are_byte_for_byte_kafkas():
    assigned = {TOPIC: frozenset({1, 0})}
    encoded = b"\x02" + ID + b"\x03" + struct.pack(">ii", 0, 1) + b"\0"
    assert encode_target(assigned) == b"\0\0" + encoded + b"\0"
    current = CurrentAssignmentRecord(5, 4, 1, {}, assigned)
    whole = b"\0\0" + struct.pack(">iib", 5, 4, 1) + b"\x01" + encoded + b"\0"
    assert encode_current(current) == whole
    assert decode_current(whole) == current


def test_a_resolved_regular_expression_is_byte_for_byte_kafkas():
    resolved = ResolvedRegexRecord(("t",), 8, 9)
    assert encode_regex(resolved) == b"\0\0" + b"\x02\x02t" + struct.pack(">qq", 8, 9) + b"\0"
    assert decode_regex(encode_regex(resolved)) == resolved


@given(metadata, assignments, assignments, st.integers(0, 127), names, int64, int32)
def test_records_survive_the_round_trip(member, one, other, state, topics, number, epoch):
    assert decode_member(encode_member(member)) == member
    assert decode_target(encode_target(one)) == one
    current = CurrentAssignmentRecord(epoch, epoch, state, one, other)
    assert decode_current(encode_current(current)) == current
    assert decode_regex(encode_regex(ResolvedRegexRecord(topics, number, number))).topics == topics
    records = tuple(TopicRecord(topic, "t", epoch) for topic in one)
    assert decode_topics(encode_topics(records)) == records


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data):
    for decode in DECODERS:
        for value in (data, b"\0\0" + data):
            try:
                decode(value)
            except MalformedRecord:
                continue


def test_a_record_that_is_cut_off_is_malformed():
    for decode, encoded in (
        (decode_member, encode_member(MEMBER)),
        (decode_current, encode_current(CurrentAssignmentRecord(5, 4, 0, {TOPIC: frozenset({1})}, {}))),
        (decode_topics, encode_topics([TopicRecord(TOPIC, "t", 3)])),
    ):
        for end in range(len(encoded)):
            with pytest.raises(MalformedRecord):
                decode(encoded[:end])
