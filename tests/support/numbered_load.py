"""Writes numbered records to a topic while a test does something to its cluster, and records the outcome."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

Settings = Mapping[str, str | int | float | bool]


class NumberedLoad:
    """An idempotent producer with acks=all, in its own thread; ``pause_s`` is the minimum time between
    two records, long enough to leave the CPUs to what the test is about. ``settings``: more of the producer's,
    such as a login.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        pause_s: float = 0.05,
        settings: Settings | None = None,
        first: int = 0,
    ) -> None:
        self._first = first
        config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            **(settings or {}),
        }
        self._producer = Producer(config)
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked: set[int] = set()
        self.failed: list[str] = []

    def _run(self) -> None:
        for number in itertools.count(self._first):
            if self._stop.is_set():
                return
            partition = number % self._partitions
            self._producer.produce(self._topic, str(number), partition=partition, on_delivery=self._note)
            self._stop.wait(self._pause_s)  # poll alone would return with each acknowledgement
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked.add(int(message.value() or b""))
        else:
            self.failed.append(str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(120)


def numbers_in(bootstrap: str, topic: str, partitions: int, settings: Settings | None = None) -> set[int]:
    """The numbers that a consumer finds from the beginning to the end of each partition."""
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,  # it would create the offsets topic
        "enable.partition.eof": True,
        **(settings or {}),
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: set[int] = set()
    ends: set[int | None] = set()
    try:
        while len(ends) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} records, then nothing; ended: {ends}"
            error = message.error()
            if error is None:
                found.add(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.add(message.partition())
    finally:
        consumer.close()
    return found
