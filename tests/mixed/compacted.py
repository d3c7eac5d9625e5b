"""A compacted topic as a table: what its last records say, and what replicas' files say after the cleaners' work.

Each broker's cleaner works by itself, so replicas of such a topic differ in their bytes; by key they must agree.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import KafkaError, Producer

from broker.record.batch import read_records
from tests.mixed.cluster import CALL_TIMEOUT_S

# Small segments and an eager cleaner: within a few seconds nearly everything is compacted.
TOPIC_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
BROKER_CONFIG = {
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 2_000_000,
    "log.segment.bytes": 2000,  # topics may be set to as little then
}
KEYS = 10


class Table:
    """Writes rounds of values, and deletes a key in each; knows what was acknowledged last for every key."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.expected: dict[bytes, bytes | None] = {}
        self.written = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )

    def write(self, rounds: int) -> None:
        """Writes every key in every round, the last of each round's keys as a tombstone; one batch each."""
        errors: list[KafkaError] = []
        for number in range(self.written, self.written + rounds * KEYS):
            key = f"key-{number % KEYS}".encode()
            value = None if (number // KEYS + number) % KEYS == 0 else f"value-{number}".encode() * 5
            self.expected[key] = value
            self._producer.produce(
                self.topic,
                key=key,
                value=value,
                partition=0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            assert self._producer.flush(CALL_TIMEOUT_S) == 0
        assert not errors, errors[0]
        self.written += rounds * KEYS


def table_on_disk(log_dir: Path, topic: str) -> tuple[dict[bytes, bytes | None], int]:
    """What a stopped broker's replica says of each key last, and how many records it still has."""
    found: dict[bytes, bytes | None] = {}
    count = 0
    for segment in sorted((log_dir / f"{topic}-0").glob("*.log")):
        for record in read_records(segment.read_bytes()):
            assert record.key is not None
            found[bytes(record.key)] = None if record.value is None else bytes(record.value)
            count += 1
    return found, count
