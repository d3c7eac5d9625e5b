"""Group commit: one sync of a log for all requests that wait for one (``flush.messages``).

Kafka syncs within each append, so requests queue behind each other's syncs. Here appends continue while the
disk works, and a log's next sync covers everything appended meanwhile. Several logs are synced concurrently,
because a file system commits concurrent syncs together. A :class:`.sync_ring.SyncRing` on a Processor's loop syncs
without threads, if there is one. What it cannot do is left to threads: a sync of new names, and all syncs where the
kernel has no AIO. Threads start with the first syncs that they are needed for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import structlog

from broker.cluster.partition import Partition
from broker.log.durability import Durability, Tail
from broker.network.guests import Guest
from broker.protocol.errors import Errors, KafkaError
from broker.replication.sync_ring import SyncRing, load_aio
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_MOST_THREADS: Final = 8

Failures = Mapping[TopicPartition, KafkaError]


@final
class _Waiting:
    """A request, and how many of its logs are not synced yet."""

    __slots__ = ("failures", "left", "then")

    def __init__(self, left: int, then: Callable[[Failures], None]) -> None:
        self.left = left
        self.then = then
        self.failures: dict[TopicPartition, KafkaError] = {}


@final
class _Sync:
    """A log's sync by the ring, for a group of requests; ``again`` if a truncation came in between."""

    __slots__ = ("_durability", "_tail", "again", "failure", "group", "partition")

    def __init__(
        self, partition: Partition, durability: Durability, group: Sequence[_Waiting], tail: Tail
    ) -> None:
        self.partition = partition
        self.group = group
        self.failure: KafkaError | None = None
        self.again = False
        self._durability = durability
        self._tail = tail

    def fileno(self) -> int:
        return self._tail.file.fileno()

    def ended(self, error: OSError | None) -> None:
        try:
            self.again = not self._durability.end_sync(self._tail, error)
        except Exception as failure:
            self.failure = _as_kafka_error(self.partition, failure)

    def abandon(self) -> None:
        self._durability.abandon_sync()


class GroupCommit:
    """The queue of logs to sync. Thread-safe. ``on_synced(partition)`` runs after each successful sync,
    before the requests that waited for it.

    Invariant: a log is in ``_syncing`` from the moment when its group of requests is taken until they have their
    answers. So its syncs follow one another, by the ring or by a thread.
    """

    def __init__(self, on_synced: Callable[[Partition], None]) -> None:
        self._on_synced = on_synced
        self._changed = threading.Condition()  # lock order 61
        self._due: dict[Partition, list[_Waiting]] = {}
        self._syncing: set[Partition] = set()
        # What the ring leaves to the threads.
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False
        # The last thread could not be started, so nobody may have seen to its work.
        self._lacks_threads = False
        self._ring: SyncRing | None = None
        self._make_ring: Callable[[], None] | None = None

    def sync_on_loop(self, invite: Callable[[Guest], bool], load: Callable[[], Any] = load_aio) -> None:
        """Makes a Processor's loop sync without threads, from the first sync on, if this machine can.

        Not before: caio tries the kernel when it is loaded, which stops the process for 25 ms.
        """
        self._make_ring = partial(self._try_ring, invite, load)

    def _try_ring(self, invite: Callable[[Guest], bool], load: Callable[[], Any]) -> None:
        """Has a ring from now on, or threads; one line says which."""
        with self._changed:
            if self._make_ring is None or self._stopped:
                return
            self._make_ring = None
        try:
            ring = SyncRing(load(), self._deliver, self._ring_left)
        except Exception as error:  # whatever the library or the kernel says: there are threads
            _log.info("log_syncs", by="threads", reason=str(error))
            return
        _log.info("log_syncs", by="Linux AIO")
        self._ring = ring
        if not invite(ring):
            self._ring_left()

    def submit(self, partitions: Sequence[Partition], then: Callable[[Failures], None] | None = None) -> None:
        """Calls ``then`` once everything now in these logs is durable, with the errors of those where
        that failed. Without it nobody waits, and nothing is kept for the request.

        After the shutdown it runs on the caller's thread.
        """
        make_ring = self._make_ring
        if make_ring is not None:
            make_ring()
        waiting = [] if then is None else [_Waiting(len(partitions), then)]
        with self._changed:
            stopped, ring = self._stopped, self._ring
            if not stopped:
                for partition in partitions:
                    self._due.setdefault(partition, []).extend(waiting)
                if ring is None:
                    self._start_threads(min(len(self._due), _MOST_THREADS))
                    self._wake(len(partitions))
        if stopped:
            for partition in partitions:
                self._sync(partition, waiting)
        elif ring is not None and ring.loop_thread != threading.get_ident():
            self.begin()  # the loop's own thread does so once, at the end of its turn

    def shutdown(self) -> None:
        """Returns when all waiting requests were answered."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._ring_left()
        for thread in self._threads:
            thread.join()

    # -- by the ring

    def begin(self) -> None:
        """Begins the syncs that are due, all in one system call. A Processor calls it at the end of its turn."""
        if self._lacks_threads:
            with self._changed:
                self._start_threads(min(len(self._jobs) + len(self._due), _MOST_THREADS))
        # Once more after a failure: what came for that log while it was told would wait for a turn, up to a second.
        while (ring := self._ring) is not None and self._due and self._begin_due(ring):
            pass

    def _begin_due(self, ring: SyncRing) -> bool:
        """Whether a sync could not begin, which its requests were told."""
        with self._changed:
            free = [partition for partition in self._due if partition not in self._syncing]
            groups = [(partition, self._due.pop(partition)) for partition in free]
            self._syncing.update(free)
        begun = []
        failed = []
        for partition, group in groups:
            try:
                durability = partition.log.durability  # once: a move between disks may replace the log
                tail = durability.begin_sync(ring.reap)
            except Exception as error:
                failed.append((partition, group, _as_kafka_error(partition, error)))
                continue
            if tail is None:
                self._leave_to_threads(partition, group)
            else:
                begun.append(_Sync(partition, durability, group, tail))
        taken = ring.submit(begun) if begun else 0
        for sync in begun[taken:]:
            sync.abandon()
            self._leave_to_threads(sync.partition, sync.group)
        # Answers last: they run others' code, and a sync that has begun and is not submitted keeps threads waiting.
        for partition, group, failure in failed:
            self._answer(partition, group, failure)
            self._release(partition)
        return bool(failed)

    def _deliver(self, ended: Sequence[_Sync]) -> None:
        """Answers those who waited for syncs of the ring."""
        for sync in ended:
            if sync.again:
                self._leave_to_threads(sync.partition, sync.group)
                continue
            failure = sync.failure or self._tell_synced(sync.partition)
            self._answer(sync.partition, sync.group, failure)
            self._release(sync.partition)

    def _ring_left(self) -> None:
        """Leaves everything to the threads: the loop has ended, or there is none."""
        with self._changed:
            ring, self._ring = self._ring, None
            if ring is None:
                return
            self._jobs.append(ring.drain)
            self._start_threads(min(len(self._due) + 1, _MOST_THREADS))
            self._changed.notify_all()

    # -- by threads

    def _leave_to_threads(self, partition: Partition, group: Sequence[_Waiting]) -> None:
        """``partition`` is in ``_syncing``, and stays there."""
        with self._changed:
            self._jobs.append(partial(self._sync_taken, partition, group))
            self._start_threads(min(len(self._jobs), _MOST_THREADS))
            self._wake(1)

    def _start_threads(self, busy: int) -> None:
        """Starts one if fewer are idle than ``busy``. If none can be started, the next turn of a loop tries again."""
        if self._idle >= busy or len(self._threads) >= _MOST_THREADS:
            self._lacks_threads = False
            return
        thread = threading.Thread(target=self._run, name=f"log-syncer-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._lacks_threads:
                self._lacks_threads = True
                _log.error(
                    "log_syncer_not_started",
                    error=str(error),
                    action=f"tried again; until then {len(self._threads)} threads sync",
                    do="look at TasksMax of the broker's unit and at the machine's limit of threads",
                )
        else:
            self._lacks_threads = False
            self._threads.append(thread)

    def _wake(self, threads: int) -> None:
        """Wakes as many idle threads. The lock is held."""
        if self._idle:
            self._changed.notify(threads)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (job := self._next()) is None:
                    if self._stopped and not self._due and not self._syncing:
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
            try:
                job()
            except Exception:
                _log.exception("log_syncer_failed")

    def _next(self) -> Callable[[], None] | None:
        if self._jobs:
            return self._jobs.popleft()
        if self._ring is not None:
            return None
        partition = next((partition for partition in self._due if partition not in self._syncing), None)
        if partition is None:
            return None
        self._syncing.add(partition)
        return partial(self._sync_taken, partition, self._due.pop(partition))

    def _sync_taken(self, partition: Partition, group: Sequence[_Waiting]) -> None:
        """Syncs a log that is in ``_syncing``; then what came meanwhile is due."""
        try:
            self._sync(partition, group)
        finally:
            self._release(partition)
        self.begin()

    def _sync(self, partition: Partition, group: Sequence[_Waiting]) -> None:
        try:
            partition.log.sync_records()
        except Exception as error:
            failure: KafkaError | None = _as_kafka_error(partition, error)
        else:
            failure = self._tell_synced(partition)
        self._answer(partition, group, failure)

    # -- answering

    def _tell_synced(self, partition: Partition) -> KafkaError | None:
        try:
            self._on_synced(partition)
        except Exception as error:
            return _as_kafka_error(partition, error)
        return None

    def _answer(self, partition: Partition, group: Sequence[_Waiting], failure: KafkaError | None) -> None:
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

    def _release(self, partition: Partition) -> None:
        with self._changed:
            self._syncing.discard(partition)
            if self._stopped:
                self._wake(_MOST_THREADS)  # with nothing due, a stop is complete
            elif self._ring is None and self._due:
                self._wake(1)  # requests that came during the sync; a ring's loop sees them itself


def _as_kafka_error(partition: Partition, error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    _log.error("sync_failed", partition=str(partition.topic_partition), exc_info=error)
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error))
