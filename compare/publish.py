"""Publishes the comparison's own events to ``landline.lifecycle``, beside the brokers' events."""

from __future__ import annotations

import json
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer

from compare.events import Event
from compare.settings import TOPIC

FLUSH_TIMEOUT_S = 60.0


class NotPublishedError(Exception):
    """Some events were not acknowledged."""


def publish(bootstrap: str, events: Iterable[Event]) -> int:
    """Sends all events except the brokers' own; returns their number when all are acknowledged.
    Raises NotPublishedError.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            # As the brokers choose: a host's events stay in one partition.
            "partitioner": "consistent",
        }
    )
    failed: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    count = 0
    for event in events:
        if event["role"] == "broker":
            continue
        producer.produce(
            TOPIC,
            key=event["host"],
            value=json.dumps(event, separators=(",", ":")),
            timestamp=event["end_us"] // 1000,
            on_delivery=delivered,
        )
        producer.poll(0)
        count += 1
    left = producer.flush(FLUSH_TIMEOUT_S)
    if failed or left:
        raise NotPublishedError(
            f"{len(failed) + left} of {count} events were not acknowledged: {failed[:1] or 'no answer'}"
        )
    return count
