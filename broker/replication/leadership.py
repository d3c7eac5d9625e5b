"""Applies the controller's LeaderAndIsr and StopReplica requests; Kafka's becomeLeaderOrFollower
and stopReplicas.

One request runs at a time. Every partition has its own result; a request of an old controller is refused as
a whole.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from broker.cluster.partition import Partition
from broker.config.topic_name import topic_name_problem
from broker.log.log import Log
from broker.log.log_maker import WantedLog
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole, StopState
from broker.protocol.epochs import EPOCH_DURING_DELETE, NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.follower_fetch import Followed
from broker.replication.log_dir_mover import LogDirMover
from broker.replication.replica_manager import ReplicaManager
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.store import StoreError

_log = structlog.get_logger(__name__)


class UntoldError(Exception):
    """The store did not say which topic currently has a name. The request was applied, except to the
    partitions that depend on this; a repeated request applies to them too.
    """


@dataclass(frozen=True, slots=True)
class LeadershipListener:
    """Callbacks after a change of role, with no lock held: the coordinators load and unload."""

    on_leader: Callable[[TopicPartition, int], None]
    on_follower: Callable[[TopicPartition, int | None], None]


class Leadership:
    """The roles of this broker's partitions, which it owns. ``listener`` hears of every partition that begins
    or ends to lead.

    ``present_topic_id`` asks the store for a topic's current id (None: no such topic). It raises StoreError.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        fetchers: ReplicaFetcherManager,
        listener: LeadershipListener,
        present_topic_id: Callable[[str], uuid.UUID | None],
        *,
        mover: LogDirMover | None = None,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._fetchers = fetchers
        self._listener = listener
        self._present_topic_id = present_topic_id
        self._mover = mover
        self._lock = threading.Lock()  # lock order 20
        self.controller_epoch = NO_EPOCH
        self._stopping = False
        self._marks: dict[TopicPartition, int] | None = None

    def begin_stopping(self) -> None:
        """From now on, partitions whose ISR excludes this broker are not followed. Fetching them would only
        make their leader propose it for the ISR, and delay acknowledgements until the controller refuses.
        """
        self._stopping = True

    @contextmanager
    def obeying(self, controller_epoch: int) -> Iterator[None]:
        """Runs the block neither during nor after the requests of a later controller.

        Raises STALE_CONTROLLER_EPOCH for a controller that has been replaced.
        """
        with self._lock:
            self._check_controller_epoch(controller_epoch)
            yield

    def _check_controller_epoch(self, controller_epoch: int) -> None:
        """Call it with the lock held: requests of two controllers may arrive on two threads."""
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                Errors.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is older than {self.controller_epoch}",
            )
        self.controller_epoch = controller_epoch

    def expect_controller(self, controller_epoch: int) -> None:
        """Refuses requests of controllers before this one, even if none has been received yet.

        A broker forgets the controller's epoch when it stops. A replaced controller that does not know it
        could then delete what its successor has placed here.
        """
        with self._lock:
            self.controller_epoch = max(self.controller_epoch, controller_epoch)

    def apply(self, controller_epoch: int, states: Sequence[PartitionRole]) -> dict[TopicPartition, Errors]:
        """Makes this broker leader or follower of each partition; returns the error per partition.

        Raises KafkaError(STALE_CONTROLLER_EPOCH), UntoldError.
        """
        leftovers, untold = self._leftovers(states)
        if untold:
            states = [state for state in states if state.topic_partition.topic not in untold]
        accepted: list[PartitionRole] = []
        try:
            results = self._apply(controller_epoch, states, leftovers, accepted)
        except KafkaError:
            raise
        except Exception:
            # It is not answered, so it is sent again, and must not be taken for one that was carried out.
            self._forget(accepted)
            raise
        if untold:
            raise UntoldError("; ".join(f"{topic}: {reason}" for topic, reason in untold.items()))
        return results

    def _apply(
        self,
        controller_epoch: int,
        states: Sequence[PartitionRole],
        leftovers: Mapping[TopicPartition, uuid.UUID],
        accepted: list[PartitionRole],
    ) -> dict[TopicPartition, Errors]:
        """Puts into ``accepted`` the roles that it begins to take."""
        with self._replicas.putting_off(), self._lock:
            self._check_controller_epoch(controller_epoch)
            deleted = self._delete_leftovers(leftovers)
            results: dict[TopicPartition, Errors] = {}
            for state in states:
                error = self._judge(state)
                results[state.topic_partition] = error
                if error is Errors.NONE:
                    accepted.append(state)
            me = self._replicas.broker_id
            leading = [state for state in accepted if state.leader == me]
            following = [state for state in accepted if state.leader != me]
            self._fetchers.remove(frozenset(state.topic_partition for state in accepted))
            for topic_partition, why in self._make_logs(accepted).items():
                results[topic_partition] = self._offline_error(topic_partition, why)
            leading = [state for state in leading if results[state.topic_partition] is Errors.NONE]
            following = [state for state in following if results[state.topic_partition] is Errors.NONE]
            for state in leading:
                results[state.topic_partition] = self._lead(state)
            results.update(self._follow(following))
        for topic_partition in deleted:
            self._listener.on_follower(topic_partition, None)
        self._tell([s for s in leading + following if results[s.topic_partition] is Errors.NONE])
        return results

    def _forget(self, states: Iterable[PartitionRole]) -> None:
        """Makes roles that were not taken completely those of nobody, unless the partition has another by now."""
        with self._replicas.putting_off(), self._lock:
            for state in states:
                partition = self._replicas.partition(state.topic_partition)
                if partition is not None and partition.state.leader_epoch == state.leader_epoch:
                    self._fetchers.remove(frozenset({state.topic_partition}))
                    partition.forget_role()
                    self._replicas.wake_all(state.topic_partition)

    def _leftovers(
        self, states: Iterable[PartitionRole]
    ) -> tuple[dict[TopicPartition, uuid.UUID], dict[str, str]]:
        """Local replicas of deleted topics that are in the place of those in ``states``, with their topic
        ids. Also the topics that the store could not answer for, with the reason.

        Such replicas remain if their StopReplica never arrived: the broker was down during a reassignment, or
        the controller's term ended. A controller that was replaced without knowing it could take its own old
        topic for the current one. So the store is asked, before the lock is taken.
        """
        found = {}
        present: dict[str, uuid.UUID | None] = {}
        untold: dict[str, str] = {}
        for state in states:
            here, topic = self._topic_id_here(state.topic_partition), state.topic_partition.topic
            if here is None or state.topic_id in {None, here} or topic in untold:
                continue
            if topic not in present:
                try:
                    present[topic] = self._present_topic_id(topic)
                except StoreError as error:
                    untold[topic] = str(error)
                    continue
            if present[topic] == state.topic_id:
                found[state.topic_partition] = here
        return found, untold

    def _topic_id_here(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        partition = self._replicas.partition(topic_partition)
        found = self._logs.get(topic_partition) if partition is None else partition
        return None if found is None else found.topic_id

    def _delete_leftovers(self, leftovers: Mapping[TopicPartition, uuid.UUID]) -> list[TopicPartition]:
        """Deletes the leftovers that still exist; returns those found.

        One that cannot be deleted keeps its topic id, and the new replica is refused.
        """
        deleted = []
        for topic_partition, topic_id in leftovers.items():
            if self._topic_id_here(topic_partition) != topic_id:
                continue
            _log.warning("leftover_replica_found", partition=str(topic_partition), topic_id=str(topic_id))
            self._fetchers.remove(frozenset({topic_partition}))
            deleted.append(topic_partition)
            try:
                self._delete(topic_partition)
            except KafkaError as error:
                self._offline_error(topic_partition, error)
        return deleted

    def _judge(self, state: PartitionRole) -> Errors:
        partition = self._replicas.partition(state.topic_partition)
        if self._replicas.broker_id not in state.replicas:
            _log.warning("not_a_replica", partition=str(state.topic_partition), replicas=list(state.replicas))
            return Errors.UNKNOWN_TOPIC_OR_PARTITION
        if self._replicas.is_offline(state.topic_partition):
            return Errors.KAFKA_STORAGE_ERROR
        if partition is None:
            return _name_problem(state.topic_partition)
        if state.topic_id and partition.topic_id and state.topic_id != partition.topic_id:
            return Errors.INCONSISTENT_TOPIC_ID
        if state.leader_epoch <= partition.state.leader_epoch:
            return Errors.STALE_CONTROLLER_EPOCH
        return Errors.NONE

    def _make_logs(self, states: Sequence[PartitionRole]) -> dict[TopicPartition, KafkaError]:
        """Creates the logs together; one by one, each would wait for the disk and read its
        topic's configs.
        """
        return self._logs.make([WantedLog(s.topic_partition, s.topic_id, s.is_new) for s in states])

    def _partition(self, state: PartitionRole) -> Partition:
        topic_partition = state.topic_partition

        def make_log() -> Log:
            log = self._logs.get_or_create(topic_partition, state.topic_id, is_new=state.is_new)
            if self._marks is None:
                self._marks = dict(self._logs.read_high_watermarks())
            mark = self._marks.get(topic_partition, 0)
            log.offsets.mark(mark)
            return log

        is_here = self._replicas.partition(topic_partition) is not None
        partition = self._replicas.get_or_create(topic_partition, make_log)
        if not is_here and self._mover is not None:
            self._mover.resume(partition)
        return partition

    def _lead(self, state: PartitionRole) -> Errors:
        try:
            partition = self._partition(state)
        except KafkaError as error:
            return self._offline_error(state.topic_partition, error)
        before = partition.state.leader
        partition.make_leader(state)
        _log.info(
            "partition_led_here",
            partition=str(state.topic_partition),
            epoch=state.leader_epoch,
            leader_before=before,
            isr=list(state.isr),
            end_offset=partition.log.offsets.end,
            high_watermark=partition.log.offsets.high_watermark,
        )
        return Errors.NONE

    def _follow(self, states: Sequence[PartitionRole]) -> dict[TopicPartition, Errors]:
        results = {}
        by_leader: dict[int, list[Followed]] = {}
        for state in states:
            try:
                partition = self._partition(state)
            except KafkaError as error:
                results[state.topic_partition] = self._offline_error(state.topic_partition, error)
                continue
            partition.make_follower(state)
            results[state.topic_partition] = Errors.NONE
            topic_id = partition.topic_id
            leaves = self._stopping and self._replicas.broker_id not in state.isr
            if state.leader >= 0 and topic_id is not None and not leaves:
                followed = Followed(partition, topic_id, state.leader_epoch)
                by_leader.setdefault(state.leader, []).append(followed)
            _log.info(
                "partition_followed_here",
                partition=str(state.topic_partition),
                leader=state.leader,
                epoch=state.leader_epoch,
                end_offset=partition.log.offsets.end,
            )
        self._fetchers.add(by_leader)
        return results

    @staticmethod
    def _offline_error(topic_partition: TopicPartition, error: KafkaError) -> Errors:
        _log.error("partition_offline", partition=str(topic_partition), reason=error.message)
        return error.error_code

    def take_offline(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Drops the partitions of a failed log directory, whatever the controller says.

        Kafka's handleLogDirFailure.
        """
        with self._replicas.putting_off(), self._lock:
            self._fetchers.remove(frozenset(topic_partitions))
            self._replicas.mark_offline(topic_partitions)
        for topic_partition in topic_partitions:
            self._listener.on_follower(topic_partition, None)

    def alter_log_dirs(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, Errors]:
        """Begins to move each partition to the log directory of its path; returns the error per partition.

        The controller's requests are served in between: each move makes a directory.
        """
        mover = self._mover
        assert mover is not None
        results = {}
        for topic_partition, path in wanted.items():
            with self._lock:
                is_offline = self._replicas.is_offline(topic_partition)
                results[topic_partition] = mover.alter(topic_partition, path, is_offline=is_offline)
        return results

    def _tell(self, states: Iterable[PartitionRole]) -> None:
        for state in states:
            self._replicas.wake_all(state.topic_partition)
            if state.leader == self._replicas.broker_id:
                self._listener.on_leader(state.topic_partition, state.leader_epoch)
            else:
                self._listener.on_follower(state.topic_partition, state.leader_epoch)

    def stop(self, controller_epoch: int, states: Sequence[StopState]) -> dict[TopicPartition, Errors]:
        """Stops replicas, and deletes them if requested; returns the error per partition."""
        with self._replicas.putting_off(), self._lock:
            self._check_controller_epoch(controller_epoch)
            results = {}
            stopped = []
            for state in states:
                results[state.topic_partition] = error = self._judge_stop(state)
                if error is Errors.NONE:
                    stopped.append(state)
            self._fetchers.remove(frozenset(state.topic_partition for state in stopped))
            for state in stopped:
                try:
                    self._stop_one(state)
                except KafkaError as error:
                    results[state.topic_partition] = self._offline_error(state.topic_partition, error)
        for state in stopped:
            epoch = None if state.leader_epoch < 0 else state.leader_epoch
            self._listener.on_follower(state.topic_partition, epoch)
        return results

    def _judge_stop(self, state: StopState) -> Errors:
        if self._replicas.is_offline(state.topic_partition):
            return Errors.KAFKA_STORAGE_ERROR
        partition = self._replicas.partition(state.topic_partition)
        if partition is None or state.leader_epoch in (NO_EPOCH, EPOCH_DURING_DELETE):
            return Errors.NONE
        return (
            Errors.FENCED_LEADER_EPOCH if state.leader_epoch < partition.state.leader_epoch else Errors.NONE
        )

    def _stop_one(self, state: StopState) -> None:
        topic_partition = state.topic_partition
        if not state.delete:
            # The log and its state stay; the replica only stops fetching or leading.
            partition = self._replicas.partition(topic_partition)
            if partition is not None:
                partition.step_down()
                self._replicas.wake_all(topic_partition)
            return
        self._delete(topic_partition)

    def _delete(self, topic_partition: TopicPartition) -> None:
        self._replicas.forget(topic_partition)
        if self._logs.get(topic_partition) is not None:
            self._logs.delete_async(topic_partition)
            _log.info("replica_deleted", partition=str(topic_partition))


def _name_problem(topic_partition: TopicPartition) -> Errors:
    """Refuses names and numbers that no controller sends; a directory would be created for them."""
    problem = topic_name_problem(topic_partition.topic)
    if problem is not None:
        _log.warning("replica_refused", reason=problem, action="LeaderAndIsr is answered with an error")
        return Errors.INVALID_TOPIC_EXCEPTION
    if topic_partition.partition < 0:
        _log.warning(
            "replica_refused", partition=str(topic_partition), reason="a partition's number is not negative"
        )
        return Errors.INVALID_PARTITIONS
    return Errors.NONE
