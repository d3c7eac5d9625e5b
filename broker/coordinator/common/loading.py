"""Schedules the load of a partition of an internal topic when this broker is elected, and repeats one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from broker.coordinator.common.load_times import LoadTimes
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler

_FIRST_RETRY_MS: Final = 500
_LAST_RETRY_MS: Final = 30_000
_log = structlog.get_logger(__name__)


class Loading:
    """The loads of a coordinator's partitions, on the scheduler's threads. A log that cannot be read is retried
    while this broker leads the partition.

    ``what`` is loaded, for the log. ``is_current`` says whether the load for this partition and leader epoch is
    still needed. ``load`` does it, and may raise anything. It returns whether the partition is served now. ``times``
    has how long the loads took.
    """

    def __init__(
        self,
        scheduler: KafkaScheduler,
        what: str,
        is_current: Callable[[int, int], bool],
        load: Callable[[int, int], bool],
        *,
        clock: Clock,
    ) -> None:
        self._scheduler = scheduler
        self._what = what
        self._is_current = is_current
        self._load = load
        self._clock = clock
        self.times = LoadTimes(clock)

    def schedule(self, partition: int, leader_epoch: int) -> None:
        self._schedule(partition, leader_epoch, self._clock.monotonic_ms(), 0, _FIRST_RETRY_MS)

    def _schedule(
        self, partition: int, leader_epoch: int, since_ms: int, delay_ms: int, retry_ms: int
    ) -> None:
        def load() -> None:
            try:
                if self._load(partition, leader_epoch):
                    self.times.record(self._clock.monotonic_ms() - since_ms)
            except Exception as error:  # errors of the disk and of the log, retried below
                _log.exception(
                    "coordinator_load_failed",
                    what=self._what,
                    partition=partition,
                    retry_ms=retry_ms,
                    reason=str(error),
                )
                next_ms = min(2 * retry_ms, _LAST_RETRY_MS)
                self._schedule(partition, leader_epoch, since_ms, retry_ms, next_ms)

        if self._is_current(partition, leader_epoch):
            self._scheduler.schedule(f"load-{self._what}-{partition}", load, delay_ms)
