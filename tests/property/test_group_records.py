"""Records of __consumer_offsets: any value survives the round trip, and no bytes do harm."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.common.partitioning import partition_for
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
)
from broker.record.batch import Record, build_batch
from broker.utils.topic_partition import TopicPartition

texts = st.text(st.characters(codec="utf-8"), max_size=40)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
partitions = st.builds(TopicPartition, texts, int32)
offsets = st.builds(
    OffsetAndMetadata, int64, st.just(-1), texts, int64, st.none() | st.integers(0, (1 << 63) - 1)
)
members = st.builds(
    MemberRecord,
    texts,
    st.none() | texts,
    texts,
    texts,
    int32,
    int32,
    st.binary(max_size=40),
    st.binary(max_size=40),
)
groups = st.builds(
    GroupRecord,
    texts,
    int32,
    st.none() | texts,
    st.none() | texts,
    int64,
    st.lists(members, max_size=4).map(tuple),
)


@given(texts, partitions, offsets, groups)
def test_records_survive_the_round_trip(group_id, partition, offset, group):
    assert decode_key(encode_offset_key(group_id, partition)) == OffsetKey(group_id, partition)
    assert decode_key(encode_group_key(group_id)) == GroupKey(group_id)
    assert decode_offset_value(encode_offset_value(offset)) == offset
    assert decode_group_value(encode_group_value(group)) == group


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused(data):
    for decode in (decode_key, decode_offset_value, decode_group_value):
        with contextlib.suppress(MalformedRecord):
            decode(data)


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60)), min_size=1)
)
def test_replay_of_arbitrary_records_takes_or_skips_each(records):
    replay = Replay(0)
    batch = build_batch([Record(key, value, timestamp=0) for key, value in records], base_offset=100)
    assert replay.feed(memoryview(batch)) == 100 + len(records)
    assert 0 <= replay.skipped <= len(records)


@given(st.text(), st.integers(1, 1_000))
def test_every_group_has_a_partition(group_id, count):
    assert 0 <= partition_for(group_id, count) < count
