"""A librdkafka producer that writes to some partitions endlessly, to measure a failover as a client
sees it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from functools import partial
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from rig.wait import wait_until

_VALUE = bytes(100)
_INTERVAL_S = 0.02


class Producing:
    """A producer that writes one record to each of ``partitions`` every 20 ms, from entry until exit.

    ``mark`` starts a new wait: earlier records no longer count. The producer keeps the order within a
    partition, so the acknowledgement of a record acknowledges all before it.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: Collection[int]) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._marked_at = time.perf_counter()
        self._acked_at: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="producing", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.purge()

    def mark(self) -> None:
        """Counts only records that are sent from now on."""
        self._marked_at, self._acked_at = time.perf_counter(), {}

    def await_all(self, timeout_s: float) -> float:
        """Seconds from the mark until each partition has acknowledged a record. Raises after the timeout."""
        wait_until(
            lambda: len(self._acked_at) == len(self._partitions),
            timeout_s,
            interval=_INTERVAL_S,
            what=lambda: (
                f"{len(self._acked_at)} of {len(self._partitions)} partitions acknowledge to a producer"
            ),
        )
        return max(self._acked_at.values()) - self._marked_at

    def _write(self) -> None:
        while not self._ended.is_set():
            for number in self._partitions:
                delivered = partial(self._delivered, number, time.perf_counter())
                try:
                    self._producer.produce(self._topic, _VALUE, partition=number, on_delivery=delivered)
                except BufferError:  # the queue is full; the queued records come first
                    break
            self._producer.poll(_INTERVAL_S)
            self._ended.wait(_INTERVAL_S)

    def _delivered(self, partition: int, sent_at: float, error: KafkaError | None, _message: Message) -> None:
        if error is None and sent_at >= self._marked_at:
            self._acked_at.setdefault(partition, time.perf_counter())
