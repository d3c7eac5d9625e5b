"""The partitions of this broker: appends, fetches, and the requests that wait for them.

Invariant: the purgatories are checked after every step that may complete a waiting request. These are
an append (followers' fetches), an advanced high watermark (acks=all and consumers' fetches), and a
change of leader (all of them). Purgatories are checked and answers given with no lock held, on any
thread (:class:`ActionQueue`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.cluster.partition import Partition
from broker.cluster.results import Awaited
from broker.log.log import AppendOrigin, Log
from broker.log.log_manager import LogManager
from broker.log.producers.verification import VerificationGuard
from broker.protocol.alter_partition_messages import IsrChange
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import ACKS_ALL, PartitionResponse
from broker.record.validator import RecordRefusedError
from broker.replication.action_queue import ActionQueue
from broker.replication.cluster_view import ClusterView
from broker.replication.delayed_delete_records import (
    DelayedDeleteRecords,
    DeletedRecords,
    delete_local_records,
)
from broker.replication.delayed_fetch import DelayedFetch, Fetched, FetchEntry, FetchParams
from broker.replication.delayed_produce import DelayedProduce
from broker.replication.group_commit import Failures, GroupCommit
from broker.replication.replica_reader import ReplicaReader
from broker.replication.replica_selector import ReplicaSelector
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.session_news import DelayedSessionFetch, NewsBoard, SessionNews, stir_what_is_left
from broker.replication.traffic import Traffic, log_refusal
from broker.replication.transaction_verification import Guards
from broker.utils.clock import Clock
from broker.utils.purgatory import Purgatory
from broker.utils.timer import Timer
from broker.utils.topic_partition import INTERNAL_TOPICS, TopicPartition

AppendCallback = Callable[[Mapping[TopicPartition, PartitionResponse]], None]
FetchCallback = Callable[[Fetched], None]
DeleteCallback = Callable[[Mapping[TopicPartition, DeletedRecords]], None]
# Looked up here once, and not for each append.
_CLIENT: Final = AppendOrigin.CLIENT
_NO_ERROR: Final = Errors.NONE


class ReplicaManager:
    """The replicas of this broker and the requests that wait for them; Kafka's ReplicaManager. Whatever
    may complete a waiting request is passed to the purgatories, with no lock held. Owns the Partitions and
    the purgatories.

    ``submit_isr_change`` passes a change to the AlterPartitionManager. ``selector`` chooses replicas for
    consumers; without one they read from the leader.
    """

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        cluster: ClusterView,
        timer: Timer,
        clock: Clock,
        *,
        max_lag_ms: int,
        submit_isr_change: Callable[[IsrChange], None],
        leader_quota: ReplicationQuota | None = None,
        selector: ReplicaSelector | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.leader_quota = leader_quota or ReplicationQuota(clock)
        self.log_manager = log_manager
        self.traffic = Traffic()
        self.produce_purgatory = Purgatory("Produce", timer)
        self.fetch_purgatory = Purgatory("Fetch", timer)
        self.delete_records_purgatory = Purgatory("DeleteRecords", timer)
        self.purgatories = (self.produce_purgatory, self.fetch_purgatory, self.delete_records_purgatory)
        self.news_board = NewsBoard()
        self._cluster = cluster
        self._clock = clock
        self._max_lag_ms = max_lag_ms
        self._submit_isr_change = submit_isr_change
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: frozenset[TopicPartition] = frozenset()
        self.reader = ReplicaReader(
            broker_id,
            self._partitions,
            self.absence,
            self.leader_quota,
            selector,
            traffic=self.traffic,
            on_isr_expands=self._on_isr_expands,
            on_follower_read=self._on_follower_read,
        )
        self._group_commit = GroupCommit(self._on_synced)
        self._actions = ActionQueue(self._complete)
        # Makes a Processor's loop sync logs without threads.
        self.sync_on_loop = self._group_commit.sync_on_loop
        self.after_answers = self._actions.after_answers
        # Code that takes a lock does so within ``putting_off``.
        self.putting_off = self._actions.putting_off

    def settle(self) -> bool:
        """A Processor calls it at the end of its turn, for what the turn has deferred. True: again when the answers
        are sent, as :meth:`ActionQueue.settle`.
        """
        try:
            return self._actions.settle()
        finally:  # what it did may have appended markers
            self._group_commit.begin()

    # -- partitions

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def partitions(self) -> list[Partition]:
        return list(self._partitions.values())

    def local_log(self, topic_partition: TopicPartition) -> Log | None:
        """The log of the partition on this broker, in whatever role; None if there is none."""
        partition = self._partitions.get(topic_partition)
        return None if partition is None else partition.log

    def require_leader(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int = NO_EPOCH,
        *,
        or_follower: bool = False,
    ) -> Partition:
        """The partition, if this broker leads it, or follows it with ``or_follower``.

        Raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or an epoch error.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self.absence(topic_partition)
        partition.require_leader(current_leader_epoch, or_follower=or_follower)
        return partition

    def get_or_create(self, topic_partition: TopicPartition, make_log: Callable[[], Log]) -> Partition:
        """The partition, created with its log if it is new. Only for :mod:`broker.replication.leadership`."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = self._partitions[topic_partition] = Partition(
                topic_partition,
                make_log(),
                broker_id=self.broker_id,
                max_lag_ms=self._max_lag_ms,
                clock=self._clock,
                alive=self._cluster.alive,
            )
        return partition

    def forget(self, topic_partition: TopicPartition) -> Partition | None:
        """Removes the partition (not its log) and completes the requests that wait for it."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            partition.step_down()
            self.wake_all(topic_partition)
        return partition

    def mark_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions whose log directory failed; from now on they answer KAFKA_STORAGE_ERROR."""
        gone = frozenset(topic_partitions)
        self._offline |= gone
        for topic_partition in gone:
            self.forget(topic_partition)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log directory failed."""
        return topic_partition in self._offline

    @property
    def offline_count(self) -> int:
        return len(self._offline)

    def absence(self, topic_partition: TopicPartition) -> KafkaError:
        """The error for a partition that is not here: KAFKA_STORAGE_ERROR, or NOT_LEADER_OR_FOLLOWER. Callers
        with metadata decide whether the partition exists in the cluster.
        """
        if topic_partition in self._offline:
            return KafkaError(
                Errors.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} failed on this broker"
            )
        return KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {topic_partition}")

    # -- appending

    def append_records(
        self,
        *,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        callback: AppendCallback,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guards: Guards | None = None,
    ) -> None:
        """Appends each entry and answers when ``required_acks`` (-1, 0, 1) is satisfied or
        after ``timeout_ms``.

        ``entries`` holds writable views of whole batches; offsets and epochs are set in place. ``guards`` are
        those of transactional batches (:mod:`.transaction_verification`). The callback runs at once or later,
        on any thread, with no lock held.
        """
        responses: dict[TopicPartition, PartitionResponse] = {}
        pending: dict[TopicPartition, Awaited] = {}
        unsynced: list[Partition] = []
        for topic_partition, records in entries.items():
            responses[topic_partition] = self._append(
                topic_partition,
                records,
                required_acks,
                origin,
                pending,
                unsynced,
                None if guards is None else guards.get(topic_partition),
            )
        if not unsynced:
            if required_acks == ACKS_ALL and pending:
                self._await_replicas(timeout_ms, pending, responses, callback)
            else:
                callback(responses)
        elif required_acks == 0:
            self._group_commit.submit(unsynced)
            callback(responses)
        else:
            self._await_sync(
                unsynced,
                pending,
                responses,
                partial(self._await_replicas, timeout_ms, pending, responses, callback)
                if required_acks == ACKS_ALL
                else partial(callback, responses),
            )

    def _await_sync(
        self,
        unsynced: Sequence[Partition],
        pending: dict[TopicPartition, Awaited],
        responses: dict[TopicPartition, PartitionResponse],
        then: Callable[[], None],
    ) -> None:
        def synced(failures: Failures) -> None:
            for topic_partition in pending.keys() & failures.keys():
                del pending[topic_partition]
                responses[topic_partition] = self.append_refused(topic_partition, failures[topic_partition])
            then()

        self._group_commit.submit(unsynced, synced)

    def _await_replicas(
        self,
        timeout_ms: int,
        pending: dict[TopicPartition, Awaited],
        responses: dict[TopicPartition, PartitionResponse],
        callback: AppendCallback,
    ) -> None:
        """Answers a produce with acks=all; at once if everything failed or is committed."""
        if not pending:
            callback(responses)
            return
        operation = DelayedProduce(timeout_ms, pending, responses, self._partitions.get, callback)
        self.produce_purgatory.try_complete_else_watch(operation, list(pending))

    def _append(  # noqa: PLR0917 - one a partition of a produce: by name it takes 30 ns more
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        required_acks: int,
        origin: AppendOrigin,
        pending: dict[TopicPartition, Awaited],
        unsynced: list[Partition],
        guard: VerificationGuard | None,
    ) -> PartitionResponse:
        try:
            if origin is _CLIENT and topic_partition.topic in INTERNAL_TOPICS:
                raise KafkaError(
                    Errors.INVALID_TOPIC_EXCEPTION, f"{topic_partition.topic} is an internal topic"
                )
            partition = self._partitions.get(topic_partition)
            if partition is None:
                raise self.absence(topic_partition)
            info, advanced, awaited = partition.append_as_leader(
                records, required_acks=required_acks, origin=origin, guard=guard
            )
        except KafkaError as error:
            return self.append_refused(topic_partition, error)
        if not info.duplicate:
            self.traffic.messages_in += info.record_count
            self.traffic.bytes_in += info.size_bytes
        self._happened(topic_partition, advanced)
        if awaited is not None:
            pending[topic_partition] = awaited
        if partition.log.durability.flush_due:
            unsynced.append(partition)
        return PartitionResponse(_NO_ERROR, info.first_offset, info.log_append_time, info.log_start_offset)

    def _on_synced(self, partition: Partition) -> None:
        if partition.advance_high_watermark():
            self.wake(partition.topic_partition)

    def append_refused(self, topic_partition: TopicPartition, error: KafkaError) -> PartitionResponse:
        """The response for refused records; also counts and logs the refusal."""
        self.traffic.failed_produces += 1
        if error.error_code is not Errors.NOT_LEADER_OR_FOLLOWER:
            log_refusal(topic_partition, error, self.traffic)
        record_errors = error.record_errors if isinstance(error, RecordRefusedError) else ()
        return PartitionResponse(error.error_code, message=error.message or None, record_errors=record_errors)

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int, callback: DeleteCallback
    ) -> None:
        """Moves the start of each log to its offset, and answers when the live followers have moved theirs or
        after ``timeout_ms``. -1 stands for the high watermark.
        """
        # A waiting follower's next answer has the new start.
        results, pending = delete_local_records(offsets, self.require_leader, self.news_board.stir)
        operation = DelayedDeleteRecords(timeout_ms, pending, results, self.require_leader, callback)
        self.delete_records_purgatory.try_complete_else_watch(operation, list(pending))

    # -- fetching

    def fetch(
        self,
        params: FetchParams,
        entries: Sequence[FetchEntry],
        callback: FetchCallback,
        news: SessionNews | None = None,
    ) -> DelayedFetch | None:
        """Answers a fetch at once if there is enough data, an error, or no time to wait; otherwise later.

        ``news`` belongs to a fetch session whose reader accepts a single byte. Then ``entries`` are the
        session's partitions that must be read now, and the fetch waits for all its partitions. Returns the
        waiting operation, to be abandoned if the reader disconnects.
        """
        if news is not None:
            return self._fetch_news(params, entries, callback, news)
        fetched, size, urgent = self.reader.read(params, entries)
        if urgent or size >= params.min_bytes or params.max_wait_ms <= 0 or not entries:
            self._deliver(params, fetched, size, callback)
            return None

        def read_again() -> None:
            again, more, _ = self.reader.read(params, entries)
            self._deliver(params, again, more, callback)

        held_back = self.reader.held_back(params)
        operation = DelayedFetch(params, entries, self._partitions.get, read_again, held_back)
        keys = [entry.topic_partition for entry in entries]
        return None if self.fetch_purgatory.try_complete_else_watch(operation, keys) else operation

    def _fetch_news(
        self, params: FetchParams, entries: Sequence[FetchEntry], callback: FetchCallback, news: SessionNews
    ) -> DelayedFetch | None:
        fetched, size, urgent = self.reader.read(params, entries)
        stir_what_is_left(fetched, news, params.replica_id, self._partitions.get)
        if urgent or size >= params.min_bytes or params.max_wait_ms <= 0:
            self._deliver(params, fetched, size, callback)
            return None

        def read_touched() -> None:
            touched = operation.touched
            touched.update((entry.topic_partition, entry) for entry in news.take())
            again, more, _ = self.reader.read(params, touched.values())
            stir_what_is_left(again, news, params.replica_id, self._partitions.get)
            # The others had no data then, and nothing happened to them since.
            others = [each for each in fetched if each[0].topic_partition not in touched]
            self._deliver(params, others + again, more, callback)

        held_back = self.reader.held_back(params)
        operation = DelayedSessionFetch(params, news, self._partitions.get, read_touched, held_back)
        return None if self.fetch_purgatory.try_complete_else_watch(operation, [news]) else operation

    def _deliver(self, params: FetchParams, fetched: Fetched, size: int, callback: FetchCallback) -> None:
        if params.from_follower:
            self.traffic.replication_bytes_out += size
        else:
            self.traffic.bytes_out += size
        callback(fetched)

    def _on_isr_expands(self, change: IsrChange) -> None:
        self.traffic.isr_expands += 1
        self._submit_isr_change(change)

    def _on_follower_read(self, topic_partition: TopicPartition, mark_moved: bool) -> None:
        if mark_moved or self.delete_records_purgatory.watches(topic_partition):
            self.wake(topic_partition)

    # -- completing waiting requests

    def wake(self, topic_partition: TopicPartition) -> None:
        """Call when the high watermark advanced. With a lock held, call it within :attr:`putting_off`."""
        self._happened(topic_partition, True)

    def _happened(self, topic_partition: TopicPartition, mark_moved: bool) -> None:
        # Noted at once: an answer sent after this thread releases its locks includes everything up to then.
        self.news_board.stir(topic_partition)
        self._actions.add(topic_partition, mark_moved)

    def _complete(self, topic_partition: TopicPartition, mark_moved: bool) -> None:
        if mark_moved:
            self.produce_purgatory.check_and_complete(topic_partition)
            self.delete_records_purgatory.check_and_complete(topic_partition)
        self.fetch_purgatory.check_and_complete(topic_partition)
        for news in self.news_board.of(topic_partition):
            self.fetch_purgatory.check_and_complete(news)

    def wake_all(self, topic_partition: TopicPartition) -> None:
        """Checks all waiting requests: the leader changed, or the partition is gone."""
        self.wake(topic_partition)

    # -- the ISR

    def shrink_isrs(self) -> None:
        """Removes members that fell behind; a periodic task, every half ``replica.lag.time.max.ms``."""
        for partition in self.partitions():
            change = partition.maybe_shrink_isr()
            if change is not None:
                self.traffic.isr_shrinks += 1
                self._submit_isr_change(change)

    def on_isr_accepted(
        self, change: IsrChange, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        partition = self._partitions.get(change.topic_partition)
        if partition is not None:
            mark_moved = partition.on_isr_changed(change, isr, leader_epoch, partition_epoch)
            self.news_board.stir(change.topic_partition)  # a replica that left the ISR rejoins by a fetch
            if mark_moved:
                self.wake(change.topic_partition)

    def on_isr_refused(self, change: IsrChange, error: Errors) -> bool:
        """Whether to send the change again. If not, the high watermark no longer waits for the new member."""
        partition = self._partitions.get(change.topic_partition)
        if partition is None:
            return False
        again = partition.on_isr_change_refused(change, error)
        if not again and partition.advance_high_watermark():
            self.wake(change.topic_partition)
        return again

    def on_brokers_changed(self) -> None:
        """Advances high watermarks that waited for a broker which died or joined, and completes deletions
        that did.
        """
        for partition in self.partitions():
            topic_partition = partition.topic_partition
            if partition.advance_high_watermark() or self.delete_records_purgatory.watches(topic_partition):
                self.wake(topic_partition)

    def shutdown(self) -> None:
        """Answers requests that wait for a sync. Call it after the sockets have stopped taking requests."""
        self._group_commit.shutdown()

    def checkpoint_high_watermarks(self) -> None:
        """Writes replication-offset-checkpoint; periodically and at shutdown."""
        self.log_manager.checkpoint_high_watermarks(
            {
                partition.topic_partition: partition.log.offsets.high_watermark
                for partition in self.partitions()
            }
        )
