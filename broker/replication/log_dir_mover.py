"""Moves replicas between the log directories of this broker (KIP-113); Kafka's ReplicaAlterLogDirsManager.

Threads copy the logs' records in chunks, each partition in turn, under a throttle. What a move consists of is
in :mod:`broker.cluster.partition_log` and :mod:`broker.log.log_mover`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from broker.cluster.partition import Partition
from broker.log.log_manager import LogManager
from broker.protocol.errors import Errors, KafkaError
from broker.replication.replication_quota import ReplicationQuota
from broker.utils.refusal_log import log_refusal
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_CHUNK_BYTES: Final = 1 << 20
_CHUNKS_A_TURN: Final = 16
# As much is copied while the partition waits.
_LAST_BYTES: Final = 1 << 18
_RETRY_S: Final = 1.0
# Longer waits of the throttle are cut into these, so that a raised limit is noticed.
_LONGEST_PAUSE_S: Final = 0.5


class LogDirMover:
    """The moves in progress, and the threads for them, which start with the first move. ``wake`` is called for
    a partition whose log was replaced.

    Invariant: while a partition has a future log, it is in the queue or in the hands of one thread, and never in
    those of two.
    """

    def __init__(
        self,
        logs: LogManager,
        partition_of: Callable[[TopicPartition], Partition | None],
        wake: Callable[[TopicPartition], None],
        quota: ReplicationQuota,
        threads: int,
    ) -> None:
        self._logs = logs
        self._partition_of = partition_of
        self._wake = wake
        self.quota = quota
        self._most_threads = threads
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()  # lock order 25
        self._queue: deque[TopicPartition] = deque()
        # The partitions in the hands of threads, and whether another turn was asked for meanwhile.
        self._held: dict[TopicPartition, bool] = {}
        self._stopped = threading.Event()

    # -- requests; the caller holds the lock of Leadership

    def alter(self, topic_partition: TopicPartition, path: str, *, is_offline: bool) -> Errors:
        """Begins to move the partition to the log directory at ``path``, in Kafka's order of checks.

        A partition that is not here is created there later.
        """
        try:
            log_dir = self._logs.dir_at(path)
            if is_offline:
                return Errors.KAFKA_STORAGE_ERROR
            moving = self._logs.future(topic_partition)
            if moving is not None and moving[1] is not log_dir:
                self._give_up(topic_partition)
                moving = None
            partition = self._partition_of(topic_partition)
            if partition is None:
                self._logs.prefer(topic_partition, log_dir)
                return Errors.REPLICA_NOT_AVAILABLE
            if moving is None and self._logs.dir_of(topic_partition) is not log_dir:
                partition.begin_move(self._logs.create_future(topic_partition, log_dir))
                _log.info("log_move_begins", partition=str(topic_partition), to=path)
                self._add(topic_partition)
        except KafkaError as error:
            log_refusal("log_move_refused", path, error.message)
            return error.error_code
        return Errors.NONE

    def resume(self, partition: Partition) -> None:
        """Goes on with a move from before a restart."""
        moving = self._logs.future(partition.topic_partition)
        if moving is None:
            return
        if moving[0].topic_id != partition.log.topic_id:
            self._logs.drop_future(partition.topic_partition)
            return
        try:
            partition.begin_move(moving[0])
        except KafkaError as error:
            _log.warning("log_move_not_resumed", partition=str(partition.topic_partition), error=str(error))
            return
        _log.info("log_move_goes_on", partition=str(partition.topic_partition), to=str(moving[1].path))
        self._add(partition.topic_partition)

    def _add(self, topic_partition: TopicPartition) -> None:
        with self._changed:
            if self._stopped.is_set():
                return
            if topic_partition in self._held:
                self._held[topic_partition] = True
                return
            if topic_partition not in self._queue:
                self._queue.append(topic_partition)
            if len(self._threads) < min(self._most_threads, len(self._queue) + len(self._held)):
                name = f"log-dir-mover-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def shutdown(self) -> None:
        """Stops the threads. The moves go on after the next start."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # -- the threads

    def _run(self) -> None:
        while (topic_partition := self._next()) is not None:
            goes_on = False
            try:
                goes_on = self._move(topic_partition)
            except KafkaError as error:
                goes_on = self._failed(topic_partition, error)
            except Exception:
                _log.exception("log_move_failed", partition=str(topic_partition))
                self._give_up(topic_partition)
            with self._changed:
                asked_for = self._held.pop(topic_partition)
                if goes_on or asked_for:
                    self._queue.append(topic_partition)

    def _next(self) -> TopicPartition | None:
        with self._changed:
            while not self._stopped.is_set():
                if self._queue:
                    topic_partition = self._queue.popleft()
                    self._held[topic_partition] = False
                    return topic_partition
                self._changed.wait()
            return None

    def _move(self, topic_partition: TopicPartition) -> bool:
        """Copies for one turn; whether there is more to do. Raises KafkaError."""
        partition = self._partition_of(topic_partition)
        if partition is None or (future := partition.future) is None:
            return False
        if future.health.refusal is not None:  # what space is left is for the records of others
            self._stopped.wait(_RETRY_S)
            return True
        for _ in range(_CHUNKS_A_TURN):
            copied = partition.copy_to_future(_CHUNK_BYTES)
            self._pause(copied)
            if self._stopped.is_set():
                return True
            if copied < _LAST_BYTES:
                break
        else:
            return True
        if not partition.finish_move(_LAST_BYTES, partial(self._logs.put_future_in_place, topic_partition)):
            return partition.future is not None
        _log.info("log_moved", partition=str(topic_partition), dir=str(partition.log.dir))
        self._wake(topic_partition)
        return False

    def _pause(self, copied: int) -> None:
        if not self.quota.is_set:
            return
        self.quota.record(copied)
        while (wait_ms := self.quota.wait_ms()) and not self._stopped.is_set():
            self._stopped.wait(min(wait_ms / 1000, _LONGEST_PAUSE_S))

    def _failed(self, topic_partition: TopicPartition, error: KafkaError) -> bool:
        """Whether to try again: after a truncation or retention, and while a disk is full."""
        moving = self._logs.future(topic_partition)
        is_damaged = error.error_code is Errors.CORRUPT_MESSAGE
        if moving is not None and not is_damaged and moving[1].health.failure is None:
            self._stopped.wait(_RETRY_S)
            return True
        _log.error("log_move_given_up", partition=str(topic_partition), reason=error.message)
        self._give_up(topic_partition)
        return False

    def _give_up(self, topic_partition: TopicPartition) -> None:
        partition = self._partition_of(topic_partition)
        if partition is not None:
            partition.end_move()
        self._logs.drop_future(topic_partition)
