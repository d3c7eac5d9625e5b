"""Kafka's own offsets decoder reads the records that the group coordinator writes."""

from __future__ import annotations

import struct

import pytest

from broker.utils.topic_partition import TopicPartition
from rig.kafka_dist import KafkaDistUnavailableError, dump_log_segments
from tests.support.group_fakes import Harness

pytestmark = pytest.mark.integration


def test_kafka_decodes_our_groups_offsets_and_tombstones(tmp_path):
    h = Harness()
    subscription = struct.pack(">hih", 0, 1, 6) + b"orders" + struct.pack(">i", -1)
    (member,) = h.stable_group(protocols=(("range", subscription),), instance="instance-7")
    h.commit({TopicPartition("orders", 4): 4711}, member.member_id, 1, instance="instance-7")
    h.coordinator.on_partitions_deleted([TopicPartition("orders", 4)])
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(batch for _, batch in h.appender.log(0).batches))
    try:
        dumped = dump_log_segments([log], "--offsets-decoder")
    except KafkaDistUnavailableError as error:
        pytest.skip(str(error))
    assert dumped.returncode == 0, dumped.stderr
    text = dumped.stdout
    for part in (
        '"type":"2"',
        "instance-7",
        member.member_id,
        "4711",
        "orders",
        '"partition":4',
        "payload: <DELETE>",
    ):
        assert part in text, text
    assert "corrupt" not in text.lower()
