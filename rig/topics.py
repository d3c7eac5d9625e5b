"""Topics as librdkafka's admin client sees them from outside: creation, replicas, offsets and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.protocol.api_keys import ApiKey
from rig.raw_client import RawClient
from rig.wait import wait_until

CALL_TIMEOUT_S = 30.0
BROKER_TIMEOUT_S = 5.0


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    replication_factor: int = 1,
    config: dict[str, str] | None = None,
) -> None:
    """Creates a topic and waits until every broker reports a leader for every partition."""
    admin = _admin(bootstrap)
    created = admin.create_topics([NewTopic(topic, partitions, replication_factor, config=config or {})])
    created[topic].result(2 * CALL_TIMEOUT_S)

    await_leaders(bootstrap, topic, partitions)


def await_leaders(bootstrap: str, topic: str, partitions: int | None = None) -> None:
    """Waits until every broker that answers reports a leader for every partition.

    After a start or a creation there is no leader for a moment, and brokers learn of it one after another.
    """
    admin = _admin(bootstrap)

    def has_leaders() -> bool:
        brokers = admin.list_topics(topic, timeout=CALL_TIMEOUT_S).brokers.values()
        return all(_knows_leaders(str(broker.host), broker.port, topic, partitions) for broker in brokers)

    wait_until(has_leaders, timeout=60, what=f"every partition of {topic} has a leader")


def _knows_leaders(host: str, port: int, topic: str, partitions: int | None) -> bool:
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    try:
        with RawClient(host, port, BROKER_TIMEOUT_S) as client:
            found = client.ask(ApiKey.METADATA, 4, fields).topics[0].partitions
    except OSError:  # Dead or frozen: detected by the other brokers, not waited for here.
        return True
    return len(found) == (partitions or max(1, len(found))) and all(p.leader_id >= 0 for p in found)


def delete_topics(bootstrap: str, topics: Iterable[str]) -> None:
    """Deletes topics; raises for one that cannot be deleted."""
    admin = _admin(bootstrap)  # Must outlive its futures.
    for deleted in admin.delete_topics(list(topics)).values():
        deleted.result(2 * CALL_TIMEOUT_S)


def isr_sizes(bootstrap: str, topic: str) -> dict[int, int]:
    """The number of in-sync replicas of each partition."""
    found = _admin(bootstrap).list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
    return {number: len(partition.isrs) for number, partition in found.partitions.items()}


def partition_replicas(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """The replicas of each partition, the preferred leader first."""
    found = _admin(bootstrap).list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
    return {number: list(partition.replicas) for number, partition in found.partitions.items()}


def partition_leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """Each partition's leader, -1 where there is none."""
    found = _admin(bootstrap).list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
    return {number: partition.leader for number, partition in found.partitions.items()}


def await_full_isr(bootstrap: str, topic: str, replicas: int, timeout_s: float = 120.0) -> None:
    """Waits until every partition's ISR has this many replicas, and leadership is balanced across
    the replicas.
    """

    def settled() -> bool:
        sizes = isr_sizes(bootstrap, topic)
        leaders = partition_leaders(bootstrap, topic)
        return set(sizes.values()) == {replicas} and len(set(leaders.values())) == min(len(leaders), replicas)

    wait_until(settled, timeout=timeout_s, interval=0.2, what=f"all replicas of {topic} are in sync and lead")


def record_count(bootstrap: str, topic: str) -> int:
    """The sum of the partitions' end offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-count"})
    try:
        return sum(end_offsets(consumer, topic).values())
    finally:
        consumer.close()


def all_records(bootstrap: str, topic: str, settings: Mapping[str, str] | None = None) -> list[Any]:
    """Every record that the topic has now, as librdkafka's messages, in order within each partition. ``settings``:
    more of the consumer's, such as a login.
    """
    own = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "enable.auto.commit": False}
    consumer = Consumer({**own, **(settings or {})})
    found: list[Any] = []
    try:
        held = held_offsets(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, each.start) for partition, each in held.items()])

        def complete() -> bool:
            batch = consumer.consume(1000, timeout=0.5)
            found.extend(message for message in batch if message.error() is None)
            return len(found) >= sum(map(len, held.values()))

        wait_until(complete, timeout=2 * CALL_TIMEOUT_S, what=f"the end of {topic}")
    finally:
        consumer.close()
    return found


def end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """Each partition's end offset (its high watermark)."""
    return {partition: each.stop for partition, each in held_offsets(consumer, topic).items()}


def held_offsets(consumer: Consumer, topic: str) -> dict[int, range]:
    """The offsets of each partition from its start to its high watermark."""
    partitions = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions
    return {partition: _held(consumer, TopicPartition(topic, partition)) for partition in partitions}


def _held(consumer: Consumer, partition: TopicPartition) -> range:
    """Retries: a new leader reports no end offset until its followers have confirmed it
    (OFFSET_NOT_AVAILABLE, KIP-207).
    """
    low, high = wait_until(
        lambda: consumer.get_watermark_offsets(partition, timeout=CALL_TIMEOUT_S),
        timeout=CALL_TIMEOUT_S,
        what=f"the high watermark of {partition}",
    )
    return range(low, high)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
