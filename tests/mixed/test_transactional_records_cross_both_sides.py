"""Transactional records at leaders of both kinds, whichever kind coordinates the transaction."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.mixed.cluster import MixedCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
PARTITIONS = 3
TIMEOUT_S = 60


def test_committed_records_and_offsets_are_there_and_aborted_ones_are_not(one_kafka: MixedCluster) -> None:
    topic = f"records-{uuid.uuid4().hex[:6]}"
    one_kafka.create_topic(topic)
    one_kafka.elect_preferred(topic)
    reader = Consumer(
        {
            "bootstrap.servers": one_kafka.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    expected = set()
    # So many ids have their coordinators on both sides.
    for number in range(8):
        producer = Producer(
            {"bootstrap.servers": one_kafka.bootstrap, "transactional.id": f"{topic}-{number}"}
        )
        producer.init_transactions(TIMEOUT_S)
        for is_committed in (False, True):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = f"{number} {partition} {is_committed}".encode()
                producer.produce(topic, value, partition=partition)
                if is_committed:
                    expected.add(value)
            producer.flush(TIMEOUT_S)
            position = [TopicPartition(topic, 0, 2 * number + is_committed)]
            producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), TIMEOUT_S)
            if is_committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
        (committed,) = reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert committed.offset == 2 * number + 1
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found = []
    while len(found) < len(expected):
        message = reader.poll(TIMEOUT_S)
        assert message is not None, f"{len(found)} of {len(expected)} records came"
        assert message.error() is None
        found.append(message.value())
    assert sorted(found) == sorted(expected)
    assert reader.poll(1) is None
    reader.close()
