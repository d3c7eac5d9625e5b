"""The records of __consumer_offsets: every version read, Kafka's own files read, what is written readable again."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.loader import Replay
from broker.coordinator.group.records import (
    GroupKey,
    GroupRecord,
    MemberRecord,
    OffsetAndMetadata,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    subscribed_topics,
)
from broker.record.batch import read_records
from broker.utils.topic_partition import TopicPartition
from tests.support.kafka_log_dirs import logs_of

TP = TopicPartition("topic", 3)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def test_keys_are_byte_for_byte_kafkas():
    assert encode_offset_key("g", TP) == b"\0\x01" + text("g") + text("topic") + struct.pack(">i", 3)
    assert encode_group_key("g") == b"\0\x02" + text("g")


def test_keys_are_read_in_all_versions():
    assert decode_key(encode_offset_key("g", TP)) == OffsetKey("g", TP)
    assert decode_key(b"\0\0" + encode_offset_key("g", TP)[2:]) == OffsetKey("g", TP)
    assert decode_key(encode_group_key("g")) == GroupKey("g")


def test_offset_value_is_byte_for_byte_kafkas_version_3():
    value = OffsetAndMetadata(7, 2, "m", 99)
    assert encode_offset_value(value) == b"\0\x03" + struct.pack(">qi", 7, 2) + text("m") + struct.pack(
        ">q", 99
    )


def test_offset_with_an_expiry_of_its_own_is_written_as_version_1():
    value = OffsetAndMetadata(7, -1, "m", 99, 150)
    encoded = encode_offset_value(value)
    assert encoded == b"\0\x01" + struct.pack(">q", 7) + text("m") + struct.pack(">qq", 99, 150)
    assert decode_offset_value(encoded) == value


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (
            b"\0\0" + struct.pack(">q", 7) + text("m") + struct.pack(">q", 99),
            OffsetAndMetadata(7, -1, "m", 99),
        ),
        (
            b"\0\x01" + struct.pack(">q", 7) + text("m") + struct.pack(">qq", 99, -1),
            OffsetAndMetadata(7, -1, "m", 99),
        ),
        (
            b"\0\x02" + struct.pack(">q", 7) + text("m") + struct.pack(">q", 99),
            OffsetAndMetadata(7, -1, "m", 99),
        ),
        (
            b"\0\x04" + struct.pack(">qi", 7, 2) + compact(b"m") + struct.pack(">q", 99) + b"\0",
            OffsetAndMetadata(7, 2, "m", 99),
        ),
        (
            b"\0\x04" + struct.pack(">qi", 7, 2) + compact(b"m") + struct.pack(">q", 99) + b"\x01\x00\x02hi",
            OffsetAndMetadata(7, 2, "m", 99),
        ),
    ],
    ids=["v0", "v1-no-expiry", "v2", "v4", "v4-tagged"],
)
def test_older_and_newer_offset_values_are_read(encoded, expected):
    assert decode_offset_value(encoded) == expected


def group_value(version: int) -> bytes:
    """A group of one member in Kafka's classic layouts."""
    member = text("m1")
    member += text("i1") if version >= 3 else b""
    member += text("client") + text("/host")
    member += struct.pack(">i", 60_000) if version >= 1 else b""
    member += struct.pack(">i", 10_000) + blob(b"sub") + blob(b"assigned")
    return (
        struct.pack(">h", version)
        + text("consumer")
        + struct.pack(">i", 5)
        + text("range")
        + text("m1")
        + (struct.pack(">q", 123) if version >= 2 else b"")
        + struct.pack(">i", 1)
        + member
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_group_values_are_read_in_all_classic_versions(version):
    expected = GroupRecord(
        "consumer",
        5,
        "range",
        "m1",
        123 if version >= 2 else -1,
        (
            MemberRecord(
                "m1",
                "i1" if version >= 3 else None,
                "client",
                "/host",
                60_000 if version >= 1 else 10_000,
                10_000,
                b"sub",
                b"assigned",
            ),
        ),
    )
    assert decode_group_value(group_value(version)) == expected


def test_group_value_is_byte_for_byte_kafkas_version_3():
    assert encode_group_value(decode_group_value(group_value(3))) == group_value(3)


def test_flexible_group_value_is_read():
    member = compact(b"m1") + b"\0" + compact(b"c") + compact(b"/h") + struct.pack(">ii", 6, 1)
    member += compact(b"sub") + compact(b"") + b"\0"
    encoded = b"\0\x04" + compact(b"consumer") + struct.pack(">i", 5) + compact(b"range") + b"\0"
    encoded += struct.pack(">q", 9) + b"\x02" + member + b"\0"
    read = decode_group_value(encoded)
    assert (read.leader, read.state_timestamp_ms, read.members[0].group_instance_id) == (None, 9, None)
    assert read.members[0].subscription == b"sub"


def test_empty_group_has_no_protocol_and_no_leader():
    record = GroupRecord("consumer", 6, None, None, 77, ())
    encoded = encode_group_value(record)
    assert encoded == b"\0\x03" + text("consumer") + struct.pack(">ihhqi", 6, -1, -1, 77, 0)
    assert decode_group_value(encoded) == record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        b"\0\x05",
        b"\xff\xff",
        b"\0\x03\0",
        group_value(3)[:-1],
        b"\0\x03" + text("c") + b"\0\0\0\x01",
    ],
)
def test_torn_and_unknown_values_are_malformed(value):
    with pytest.raises(MalformedRecord):
        decode_group_value(value)


def test_array_length_that_the_bytes_cannot_hold_is_refused_before_it_is_used():
    value = group_value(3)
    header = len(b"\0\x03" + text("consumer")) + 4 + len(text("range") + text("m1")) + 8
    with pytest.raises(MalformedRecord, match="array of 2147483647"):
        decode_group_value(value[:header] + struct.pack(">i", 2**31 - 1) + value[header + 4 :])


def test_topics_of_a_consumers_subscription_are_found_in_every_version():
    for version in range(4):
        subscription = struct.pack(">hi", version, 2) + text("a") + text("b") + blob(b"user") + b"rest"
        assert subscribed_topics(subscription) == {"a", "b"}
    with pytest.raises(MalformedRecord):
        subscribed_topics(b"\0\0\0")


@pytest.fixture(scope="module")
def kafka_logs(tmp_path_factory) -> list[Path]:
    return logs_of("__consumer_offsets", tmp_path_factory.mktemp("kafka"))


def test_kafkas_own_offsets_logs_are_read_without_a_record_skipped(kafka_logs):
    groups, offsets = {}, {}
    for path in kafka_logs:
        replay = Replay(0)
        replay.feed(memoryview(path.read_bytes()))
        assert (replay.skipped, replay.first_skipped) == (0, None), path
        assert replay.transactions == {}, "every transaction in the fixture has its end"
        groups.update(replay.groups)
        offsets.update(replay.offsets)
    assert groups
    assert any(offsets.values())
    assert {g.protocol_type for g in groups.values()} <= {"consumer", "connect", "stream", ""}


def test_kafkas_own_records_are_written_again_byte_for_byte(kafka_logs):
    seen = set()
    for path in kafka_logs:
        for record in read_records(path.read_bytes()):
            key = decode_key(record.key)
            if isinstance(key, OffsetKey):
                assert encode_offset_key(key.group_id, key.partition) == record.key
            else:
                assert encode_group_key(key.group_id) == record.key
            if record.value is None:
                continue
            seen.add(type(key))
            if isinstance(key, OffsetKey):
                assert encode_offset_value(decode_offset_value(record.value)) == record.value
            else:
                assert encode_group_value(decode_group_value(record.value)) == record.value
    assert seen == {OffsetKey, GroupKey}
