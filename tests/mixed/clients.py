"""What a test of one operation asks of a mixed cluster: records written and read, what one broker says, new ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ConsumerPartition

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST, BrokerProcess
from rig.raw_client import RawClient
from rig.topics import end_offsets
from rig.wait import wait_until
from tests.mixed.cluster import CALL_TIMEOUT_S


def write(bootstrap: str, topic: str, partition: int, values: Iterable[str], acks: str = "all") -> list[int]:
    """Writes the values in order; the error codes of those that were refused."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            codes.append(error.code())

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(CALL_TIMEOUT_S) == 0
    return codes


def read(bootstrap: str, topic: str, partition: int) -> list[tuple[int, str]]:
    """Every committed record of the partition: offset and value."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: list[tuple[int, str]] = []
    try:
        place = ConsumerPartition(topic, partition)
        # Retried: librdkafka fails a request that it was about to send to a broker that it drops.
        first, end = wait_until(
            lambda: consumer.get_watermark_offsets(place, timeout=CALL_TIMEOUT_S),
            CALL_TIMEOUT_S,
            what=f"the offsets of {topic}-{partition}",
        )
        consumer.assign([ConsumerPartition(topic, partition, first)])

        def complete() -> bool:
            messages = [message for message in consumer.consume(1000, 0.2) if message.error() is None]
            found.extend((message.offset(), message.value().decode()) for message in messages)
            return first == end or bool(found and found[-1][0] + 1 >= end)

        wait_until(complete, CALL_TIMEOUT_S, what=f"{topic}-{partition} is read from {first} to {end}")
    finally:
        consumer.close()
    return found


def read_all(settings: Mapping[str, Any], topic: str) -> list[bytes]:
    """The value of every committed record, in order within each partition. ``settings`` say how to connect."""
    consumer = Consumer({**settings, "group.id": "group", "enable.auto.commit": False})
    found: list[bytes] = []
    try:
        ends = wait_until(lambda: end_offsets(consumer, topic), CALL_TIMEOUT_S, what=f"{topic} has a leader")
        consumer.assign([ConsumerPartition(topic, number, 0) for number in ends])

        def complete() -> bool:
            messages = [message for message in consumer.consume(1000, 0.2) if message.error() is None]
            found.extend(message.value() or b"" for message in messages)
            return len(found) == sum(ends.values())

        wait_until(complete, CALL_TIMEOUT_S, what=f"{topic} is read to {ends}")
    finally:
        consumer.close()
    return found


def partitions_led(broker: BrokerProcess, topic: str) -> int:
    """How many partitions with a leader this broker tells clients of; 0 when it does not know the topic."""
    with RawClient(HOST, broker.port) as client:
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (found,) = client.ask(ApiKey.METADATA, 4, fields).topics
    return sum(partition.leader_id >= 0 for partition in found.partitions)


def new_producer_id(client: RawClient) -> tuple[int] | None:
    """A producer id; None when the broker has none in hand just now and asks the controller for more."""
    fields = {"transactional_id": None, "transaction_timeout": 60_000}
    answer = client.ask(ApiKey.INIT_PRODUCER_ID, 1, fields)
    if answer.error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS:
        return None
    assert answer.error_code == 0, answer
    return (int(answer.producer_id),)
