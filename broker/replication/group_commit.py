"""Group commit: one sync of a log for all requests that wait for one (``flush.messages``).

Kafka syncs within each append, so requests queue behind each other's syncs. Here appends continue while the
disk works, and a log's next sync covers everything appended meanwhile. Several logs are synced concurrently,
because a file system commits concurrent syncs together. Threads start with the first syncs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from broker.cluster.partition import Partition
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_MOST_THREADS = 8

Failures = Mapping[TopicPartition, KafkaError]


@dataclass(slots=True)
class _Waiting:
    """A request, and how many of its logs are not synced yet."""

    left: int
    then: Callable[[Failures], None]
    failures: dict[TopicPartition, KafkaError] = field(default_factory=dict)


class GroupCommit:
    """The queue of logs to sync. Thread-safe. ``on_synced(partition)`` runs after each successful sync,
    before the requests that waited for it.
    """

    def __init__(self, on_synced: Callable[[Partition], None]) -> None:
        self._on_synced = on_synced
        self._changed = threading.Condition()  # lock order 61
        self._due: dict[Partition, list[_Waiting]] = {}
        self._syncing: set[Partition] = set()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def submit(self, partitions: Sequence[Partition], then: Callable[[Failures], None]) -> None:
        """Calls ``then`` once everything now in these logs is durable, with the errors of those where
        that failed.

        After the shutdown it runs on the caller's thread.
        """
        waiting = _Waiting(len(partitions), then)
        with self._changed:
            stopped = self._stopped
            if not stopped:
                for partition in partitions:
                    self._due.setdefault(partition, []).append(waiting)
                self._start_threads(min(len(self._due), _MOST_THREADS))
                self._changed.notify(len(partitions))
        if stopped:
            for partition in partitions:
                self._sync(partition, [waiting])

    def shutdown(self) -> None:
        """Returns when all waiting requests were answered."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _start_threads(self, busy: int) -> None:
        if self._idle < busy and len(self._threads) < _MOST_THREADS:
            thread = threading.Thread(target=self._run, name=f"log-syncer-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (partition := self._next()) is None:
                    if self._stopped and not self._due:
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                group = self._due.pop(partition)
                self._syncing.add(partition)
            self._sync(partition, group)
            with self._changed:
                self._syncing.discard(partition)
                # Requests that came during the sync are due now. With nothing due, a stop is complete.
                self._changed.notify_all() if self._stopped else self._changed.notify()

    def _next(self) -> Partition | None:
        return next((partition for partition in self._due if partition not in self._syncing), None)

    def _sync(self, partition: Partition, group: Sequence[_Waiting]) -> None:
        failure = None
        try:
            partition.log.flush()
            self._on_synced(partition)
        except KafkaError as error:
            failure = error
        except Exception as error:
            _log.exception("sync_failed", partition=str(partition.topic_partition))
            failure = KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))
        with self._changed:
            for waiting in group:
                waiting.left -= 1
                if failure is not None:
                    waiting.failures[partition.topic_partition] = failure
            done = [waiting for waiting in group if waiting.left == 0]
        for waiting in done:
            try:
                waiting.then(waiting.failures)
            except Exception:
                _log.exception("answer_after_sync_failed", partition=str(partition.topic_partition))
