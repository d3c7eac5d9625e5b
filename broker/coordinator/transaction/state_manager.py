"""The partitions of __transaction_state that this broker coordinates. Kafka's TransactionStateManager.

They are loaded on election, on the scheduler's threads, and given up on resignation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from broker.coordinator.common.led_partitions import LedPartitions
from broker.coordinator.common.load_times import LoadTimes
from broker.coordinator.common.loading import Loading
from broker.coordinator.common.replay import ReadableLog
from broker.coordinator.transaction.loader import replay
from broker.coordinator.transaction.partition import PartitionParts, TransactionPartition
from broker.protocol.errors import Errors
from broker.utils.scheduler import KafkaScheduler

_log = structlog.get_logger(__name__)


class TransactionStateManager:
    """The led partitions with their transactions; Kafka's TransactionStateManager. It owns its lock, which is never
    held while a partition's lock is taken.

    Invariant: a partition is found here only while it is led here and its log is loaded.

    ``log_of`` returns the local log of a partition of __transaction_state.
    """

    def __init__(
        self,
        parts: PartitionParts,
        log_of: Callable[[int], ReadableLog | None],
        *,
        scheduler: KafkaScheduler,
        load_bytes: int,
    ) -> None:
        self._parts = parts
        self._log_of = log_of
        self._load_bytes = load_bytes
        self._lock = threading.Lock()  # lock order 29
        self._led = LedPartitions()
        self._partitions: dict[int, TransactionPartition] = {}
        self._loading = Loading(
            scheduler, "transactions", self._led.is_current, self._load, clock=parts.clock
        )

    @property
    def load_times(self) -> LoadTimes:
        return self._loading.times

    @property
    def is_loading(self) -> bool:
        return self._led.is_loading

    def partitions(self) -> list[TransactionPartition]:
        with self._lock:
            return list(self._partitions.values())

    def find(self, partition: int) -> TransactionPartition | Errors:
        """The partition, or the error for all that is stored in it."""
        return self._partitions.get(partition) or self._led.refusal(partition) or Errors.NOT_COORDINATOR

    def on_election(self, partition: int, leader_epoch: int) -> None:
        with self._lock:
            if self._led.continues(partition, leader_epoch):
                return
            is_new = self._led.begin_loading(partition, leader_epoch)
            former = self._partitions.pop(partition, None) if is_new else None
        if former is not None:
            former.resign()
        if is_new:
            self._loading.schedule(partition, leader_epoch)
        else:
            _log.info("transaction_election_is_stale", partition=partition, leader_epoch=leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        with self._lock:
            is_new = self._led.resign(partition, leader_epoch)
            former = self._partitions.pop(partition, None) if is_new else None
        if former is not None:
            count = former.size
            former.resign()
            if count:
                _log.info("transactions_unloaded", partition=partition, transactional_ids=count)

    def resign_all(self) -> None:
        with self._lock:
            former, self._partitions = list(self._partitions.values()), {}
        for partition in former:
            partition.resign()

    def _load(self, partition: int, leader_epoch: int) -> bool:
        started_ms = self._parts.clock.monotonic_ms()
        log = self._log_of(partition)
        if log is None:
            raise LookupError(f"__transaction_state-{partition} is led here but has no log")
        transactions = replay(
            log, partition, lambda: self._led.is_current(partition, leader_epoch), self._load_bytes
        )
        if transactions is None:
            return False
        loaded = TransactionPartition(partition, leader_epoch, self._parts, transactions)
        completions = loaded.pending_completions()
        with self._lock:
            is_published = self._led.publish(partition, leader_epoch)
            if is_published:
                self._partitions[partition] = loaded
        if not is_published:
            loaded.resign()
            return False
        count = loaded.size
        say = _log.info if count else _log.debug  # most partitions of a young cluster are empty
        say(
            "transactions_loaded",
            partition=partition,
            leader_epoch=leader_epoch,
            transactional_ids=count,
            to_complete=len(completions),
            took_ms=self._parts.clock.monotonic_ms() - started_ms,
        )
        for completion in completions:
            self._parts.send_markers(completion)
        return True
