"""A numbered load that also knows when each partition's records were acknowledged: how long its producers waited."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from tests.support.numbered_load import NumberedLoad


class Gap(NamedTuple):
    """So many seconds a partition's producer waited, from so many seconds after the beginning on."""

    s: float
    at_s: float
    partition: int


class TimedLoad(NumberedLoad):
    """Times are of the clock that all hosts of a lab share, in seconds; journals call it monotonic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._times: defaultdict[int, list[float]] = defaultdict(list)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        super()._note(error, message)
        partition = message.partition()
        if error is None and partition is not None:
            self._times[partition].append(time.monotonic())

    def longest_gap(self, begin: float, end: float) -> Gap:
        """The longest time between two acknowledgements of one partition that began between these times."""
        return max(
            Gap(after - before, before - begin, partition)
            for partition, times in self._times.items()
            for before, after in pairwise(times)
            if begin <= before < end
        )
