"""The writes that only the active controller makes. Every write is a multi that checks
``/controller_epoch``'s version.

So a controller that has been replaced changes nothing, and gets :class:`ControllerMovedError`. Kafka's
KafkaZkClient does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import admin_requests, znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
    or_raise,
)
from broker.zookeeper.znodes import LeaderAndIsr, TopicAssignment

DELETES_PER_MULTI = 1000
# ZooKeeper logs and replicates one multi at a time. With topic names of 249 characters it is under 100 KB.
PARTITIONS_PER_MULTI = 50


class ControllerMovedError(StoreError):
    """Another broker is the controller, or this one's claim is gone."""


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """The znode ``/controller_epoch``: its value, and its version, which each write of a
    controller checks.
    """

    epoch: int
    zk_version: int


WriteResult = LeaderAndIsr | StoreError


class ControllerStore:
    """The guarded writes of one controller term."""

    def __init__(self, cluster_store: ClusterStore, epoch: ControllerEpoch) -> None:
        self._store = cluster_store.store
        self._cluster = cluster_store
        self.epoch = epoch

    def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> dict[TopicPartition, WriteResult]:
        """Creates the znodes of new partitions. Returns each state with its partition epoch, or the error."""
        topics = dict.fromkeys(tp.topic for tp in states)
        batches: list[list[Op]] = [[Create(znodes.partitions_path(topic))] for topic in topics]
        for tp, state in states.items():
            batches.append(
                [
                    Create(znodes.partition_path(tp)),
                    Create(znodes.state_path(tp), znodes.encode_state(state)),
                ]
            )
        results = self._guarded_together(batches, alone=len(topics))[len(topics) :]
        return {
            tp: self._created(tp, state, result)
            for (tp, state), result in zip(states.items(), results, strict=True)
        }

    def update_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> dict[TopicPartition, WriteResult]:
        """Conditional writes: each ``state.partition_epoch`` is the expected one, and the new one
        is returned.

        A result :class:`BadVersionError` means that the partition was changed by another writer.
        """
        batches: list[list[Op]] = [
            [SetData(znodes.state_path(tp), znodes.encode_state(state), state.partition_epoch)]
            for tp, state in states.items()
        ]
        results = self._guarded_together(batches)
        return {
            tp: self._updated(tp, state, result)
            for (tp, state), result in zip(states.items(), results, strict=True)
        }

    def set_topic_assignment(self, topic: str, assignment: TopicAssignment) -> TopicAssignment:
        """Returns the assignment with the znode's new version. Raises :class:`BadVersionError` if the topic
        has changed since ``assignment.version``, :class:`NoNodeError` if it is gone.
        """
        path = znodes.topic_path(topic)
        try:
            (stat,) = self._guarded([SetData(path, znodes.encode_topic(assignment), assignment.version)])
        except BadVersionError:
            found = self._cluster.topic_assignment(topic)
            # A write repeated after a connection loss may find the result of its own first attempt.
            if found is None or replace(found, version=assignment.version) != assignment:
                raise
            return found
        assert isinstance(stat, Stat)
        return replace(assignment, version=stat.version)

    def put_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Rewrites ``/admin/reassign_partitions`` with the remaining moves, or deletes it if none remain."""
        if targets:
            self._guarded(
                [SetData(admin_requests.REASSIGN_PARTITIONS, admin_requests.encode_reassignment(targets))]
            )
        else:
            self._delete_existing([admin_requests.REASSIGN_PARTITIONS])

    def delete_preferred_election_request(self) -> None:
        self._delete_existing([admin_requests.PREFERRED_ELECTION])

    def delete_topic(self, topic: str, partitions: Sequence[int]) -> None:
        """Deletes a topic's znodes. Missing nodes are ignored.

        The topic goes last, and its config and its mark with it: what outlived it would be the next topic's of
        that name, which would be deleted by the mark.
        """
        found = self._store.children_many([znodes.partitions_path(topic)])[0] or []
        numbers = sorted({*partitions, *(int(name) for name in found)})
        nodes = [
            path
            for tp in (TopicPartition(topic, number) for number in numbers)
            for path in (znodes.state_path(tp), znodes.partition_path(tp))
        ]
        nodes.append(znodes.partitions_path(topic))
        self._delete_existing(nodes)
        config = znodes.entity_config_path(znodes.entity_path("topics", topic))
        self._delete_existing([znodes.topic_path(topic), config, znodes.delete_topic_path(topic)])

    def unmark_topic_for_deletion(self, topic: str) -> None:
        self._delete_existing([znodes.delete_topic_path(topic)])

    def delete_stale_notifications(self) -> None:
        """Deletes notifications for earlier controllers. This controller reads everything anyway."""
        for parent in (znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS):
            names = self._store.children_many([parent])[0] or []
            # They were listed just now. Each may be long, and there may be as many as were made without a controller.
            self._delete_existing([f"{parent}/{name}" for name in names], listed=True)

    def delete_log_dir_events(self, paths: Sequence[str]) -> None:
        self._delete_existing(paths)

    def resign(self) -> None:
        """Deletes ``/controller`` unless it already belongs to another broker."""
        self._guarded([Delete(znodes.CONTROLLER)])

    def _delete_existing(self, paths: Sequence[str], *, listed: bool = False) -> None:
        """With ``listed``, they exist as far as is known, and are read only if one is gone."""
        for start in range(0, len(paths), DELETES_PER_MULTI):
            self._delete_chunk(paths[start : start + DELETES_PER_MULTI], listed=listed)

    def _delete_chunk(self, paths: Sequence[str], *, listed: bool) -> None:
        """A multi repeated after a connection loss may find that its first attempt has deleted everything."""
        existing = paths if listed else self._existing(paths)
        while existing:
            try:
                self._guarded([Delete(path) for path in existing])
            except NoNodeError:
                existing = self._existing(paths)
                continue
            return

    def _existing(self, paths: Sequence[str]) -> list[str]:
        found = self._store.get_many(paths)
        return [path for path, node in zip(paths, found, strict=True) if node is not None]

    def _created(
        self, tp: TopicPartition, state: LeaderAndIsr, result: list[OpResult] | StoreError
    ) -> WriteResult:
        if isinstance(result, NodeExistsError):
            return self._read_back(tp, state, result)
        return result if isinstance(result, StoreError) else replace(state, partition_epoch=0)

    def _updated(
        self, tp: TopicPartition, state: LeaderAndIsr, result: list[OpResult] | StoreError
    ) -> WriteResult:
        if isinstance(result, BadVersionError):
            return self._read_back(tp, state, result)
        if isinstance(result, StoreError):
            return result
        stat = result[0]
        assert isinstance(stat, Stat)
        return replace(state, partition_epoch=stat.version)

    def _read_back(self, tp: TopicPartition, wanted: LeaderAndIsr, error: StoreError) -> WriteResult:
        """Reads the state back. If a write repeated after a connection loss finds its own result,
        it succeeded.
        """
        found = self._cluster.partition_states([tp]).get(tp)
        if found is not None and replace(found, partition_epoch=wanted.partition_epoch) == wanted:
            return found
        return error

    def _guarded(self, ops: Sequence[Op]) -> list[OpResult]:
        return or_raise(self._guarded_many([ops])[0])

    def _guarded_together(
        self, batches: Sequence[Sequence[Op]], alone: int = 0
    ) -> list[list[OpResult] | StoreError]:
        """Like :meth:`_guarded_many`, but combines batches into multis, except the first ``alone`` batches.
        If one batch of a multi fails, nothing of the multi is done, and each batch is then tried separately.
        """
        starts = [*range(alone), *range(alone, len(batches), PARTITIONS_PER_MULTI)]
        groups = [batches[start:end] for start, end in pairwise([*starts, len(batches)])]
        results: list[list[OpResult] | StoreError] = []
        again: list[int] = []
        for group, found in zip(
            groups, self._guarded_many([[op for ops in group for op in ops] for group in groups]), strict=True
        ):
            if isinstance(found, StoreError):
                if len(group) > 1:
                    again.extend(range(len(results), len(results) + len(group)))
                results.extend([found] * len(group))
                continue
            left = iter(found)
            results.extend(list(islice(left, len(ops))) for ops in group)
        for place, single in zip(again, self._guarded_many([batches[n] for n in again]), strict=True):
            results[place] = single
        return results

    def _guarded_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        """The results without those of the version check. Raises :class:`ControllerMovedError` if the
        check failed.
        """
        check = Check(znodes.CONTROLLER_EPOCH, self.epoch.zk_version)
        results: list[list[OpResult] | StoreError] = []
        for result in self._store.multi_many([[check, *ops] for ops in batches]):
            if isinstance(result, StoreError) and result.op_index == 0:
                raise ControllerMovedError(
                    f"{znodes.CONTROLLER_EPOCH} is no longer at version {self.epoch.zk_version} "
                    f"(epoch {self.epoch.epoch}): another broker became controller"
                ) from result
            results.append(result if isinstance(result, StoreError) else result[1:])
        return results


def claim_controller(
    cluster_store: ClusterStore, broker_id: int, clock: Clock = SYSTEM_CLOCK
) -> ControllerStore:
    """Becomes controller: creates ``/controller`` and raises ``/controller_epoch`` in one multi.

    Raises :class:`ControllerMovedError` if another broker is the controller or wins at the same time.
    """
    store = cluster_store.store
    present = cluster_store.controller_epoch()
    if present is None:
        present = _create_controller_epoch(cluster_store)
    epoch, version = present[0] + 1, present[1]
    ops: list[Op] = [
        Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, clock.wall_ms()), ephemeral=True),
        SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version),
    ]
    try:
        stat = store.multi(ops)[1]
    except (NodeExistsError, BadVersionError) as error:
        return _after_lost_race(cluster_store, broker_id, epoch, error)
    assert isinstance(stat, Stat)
    return ControllerStore(cluster_store, ControllerEpoch(epoch, stat.version))


def give_up_claim(cluster_store: ClusterStore, broker_id: int) -> None:
    """Deletes ``/controller`` if it belongs to this session, whatever the term; never another broker's.

    The delete may be repeated after a connection loss, or arrive late. If another broker has claimed
    ``/controller`` by then, ``/controller_epoch`` has risen, and nothing is done.
    """
    epoch, claim = cluster_store.controller_epoch(), cluster_store.controller_claim()
    if claim is None or epoch is None:
        return
    if (claim.broker_id, claim.session_id) != (broker_id, cluster_store.session_id):
        return
    with suppress(NoNodeError, BadVersionError):
        cluster_store.store.multi([Check(znodes.CONTROLLER_EPOCH, epoch[1]), Delete(znodes.CONTROLLER)])


def _create_controller_epoch(cluster_store: ClusterStore) -> tuple[int, int]:
    with suppress(NodeExistsError):  # another broker starts at the same time
        cluster_store.store.create(znodes.CONTROLLER_EPOCH, b"0")
    found = cluster_store.controller_epoch()
    if found is None:
        raise NoNodeError(f"{znodes.CONTROLLER_EPOCH} was deleted while it was created")
    return found


def _after_lost_race(
    cluster_store: ClusterStore, broker_id: int, epoch: int, error: StoreError
) -> ControllerStore:
    """Checks whether this broker won after all: the multi may have met the node of its own first attempt,
    made before a connection loss.
    """
    claim = cluster_store.controller_claim()
    found = cluster_store.controller_epoch()
    ours = claim is not None and (claim.broker_id, claim.session_id) == (broker_id, cluster_store.session_id)
    if ours and found is not None and found[0] == epoch:
        return ControllerStore(cluster_store, ControllerEpoch(*found))
    holder = "nobody" if claim is None else f"broker {claim.broker_id}"
    raise ControllerMovedError(f"lost the election for epoch {epoch}: {holder} is controller") from error
