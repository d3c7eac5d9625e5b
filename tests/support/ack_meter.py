"""Measures how long a producer goes without an acknowledgement: what a user notices of a fault.

One librdkafka producer, acks=all, one record every few milliseconds to one partition, with the client's
default retry times. Lost or duplicated records are checked elsewhere.
"""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

from rig.wait import wait_until

INTERVAL_S = 0.005


class AckMeter:
    """A producer that runs inside its ``with`` block, in its own thread; raises at the end when a record
    failed for good.
    """

    def __init__(self, bootstrap: str, topic: str, partition: int = 0) -> None:
        self._topic = topic
        self._partition = partition
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 120_000}
        )
        self._acked_at: list[float] = []
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ack-meter", daemon=True)

    @property
    def acked(self) -> int:
        """The number of acknowledgements so far."""
        return len(self._acked_at)

    def await_acks(self, more: int, timeout_s: float = 120.0) -> None:
        """Waits until this many further records were acknowledged."""
        wanted = self.acked + more
        wait_until(
            lambda: self.acked >= wanted, timeout=timeout_s, what=lambda: f"acks: {self.acked} of {wanted}"
        )

    def longest_gap_s(self) -> float:
        """The longest time between two consecutive acknowledgements."""
        times = list(self._acked_at)
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)
        if kind is None and self._failures:
            raise AssertionError(f"records failed: {self._failures[:3]}")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, b"x" * 100, partition=self._partition, on_delivery=self._note)
            self._producer.poll(INTERVAL_S)

    def _note(self, error: object, _message: object) -> None:
        if error is None:
            self._acked_at.append(time.monotonic())
        else:
            self._failures.append(str(error))
