"""A group coordinator with manual time, a log in memory, and an appender that the test controls.

The fakes have the interfaces of Timer, KafkaScheduler, Clock, ``ReplicaManager.append_records`` and Log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group import weights
from broker.coordinator.group.commits import CommitRequest
from broker.coordinator.group.consumer.messages import no_topics
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.messages import JoinRequest, JoinResult, MemberIdentity, SyncRequest, SyncResult
from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.states import GroupState
from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import PartitionResponse
from broker.record.batch import Record, build_batch, iter_batches, read_records
from broker.record.header import set_offset_and_epoch
from broker.utils.timer import Timer, TimerEntry
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock

START_MONOTONIC_MS = 1_000_000
START_WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"range-metadata"),)


class ManualTimer:
    """Steps a timer of the broker's, ``real``: it runs callbacks when the test advances the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.real = Timer("manual", clock, own_thread=False)

    @property
    def entries(self) -> set[TimerEntry]:
        return {entry for bucket in self.real._buckets.values() for entry in bucket}

    @property
    def waiting(self) -> int:
        return len(self.entries)

    def advance(self, duration_ms: int) -> None:
        end_ms = self._clock.now_ms + duration_ms
        while (due_ms := self.real.next_due_ms()) is not None and due_ms <= end_ms:
            self._clock.now_ms = max(self._clock.now_ms, due_ms)
            self.real.run_due()
        self._clock.now_ms = end_ms


class ManualScheduler:
    """A scheduler that keeps tasks until :meth:`run`; the test runs periodic ones through the coordinator."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, Callable[[], None], int, int]] = []

    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0, period_ms: int = -1) -> None:
        self.tasks.append((name, action, delay_ms, period_ms))

    def run(self) -> list[str]:
        """Runs the waiting one-time tasks; returns their names."""
        once = [task for task in self.tasks if task[3] < 0]
        self.tasks = [task for task in self.tasks if task[3] >= 0]
        for _, action, _, _ in once:
            action()
        return [name for name, *_ in once]


class MemoryLog:
    """A log of whole batches in memory, read as Log reads them."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches: list[tuple[int, bytes]] = []
        self.broken = False

    def append(self, batch: bytes | memoryview) -> int:
        copy = bytearray(batch)
        header = next(iter_batches(bytes(copy)))
        base = self.log_end_offset
        set_offset_and_epoch(memoryview(copy), 0, base, header.length, 0)
        self.batches.append((base + header.last_offset_delta, bytes(copy)))
        self.log_end_offset = base + header.last_offset_delta + 1
        return base

    def append_records(self, *records: tuple[bytes | None, bytes | None], **batch: Any) -> int:
        return self.append(
            build_batch([Record(key, value, timestamp=START_WALL_MS) for key, value in records], **batch)
        )

    def read_bytes(self, offset: int, max_bytes: int) -> memoryview:
        if self.broken:
            raise OSError(5, "Input/output error")
        data = b""
        for last_offset, batch in self.batches:
            if last_offset < offset:
                continue
            if data and len(data) + len(batch) > max_bytes:
                break
            data += batch
        return memoryview(data)

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches for record in read_records(batch)]


class FakeAppender:
    """An appender to memory logs; acknowledges at once or later (``hold``), or fails with ``error`` and
    writes nothing. The next appends end with ``next_errors``, if there are any.
    """

    def __init__(self) -> None:
        self.logs: dict[int, MemoryLog] = {}
        self.error = Errors.NONE
        self.next_errors: list[Errors] = []
        self.hold = False
        self.held: list[Callable[[Errors], None]] = []
        self.required_acks: list[int] = []
        self.timeouts_ms: list[int] = []

    def log(self, partition: int) -> MemoryLog:
        return self.logs.setdefault(partition, MemoryLog())

    def __call__(self, *, timeout_ms, required_acks, entries, callback, origin, guards=None) -> None:
        self.required_acks.append(required_acks)
        self.timeouts_ms.append(timeout_ms)
        ((partition, records),) = entries.items()
        assert not records.readonly, "the log sets offsets in place"
        error = self.next_errors.pop(0) if self.next_errors else self.error
        if error is not Errors.NONE:
            callback({partition: PartitionResponse(error)})
            return
        base = self.log(partition.partition).append(records)
        if not self.hold or required_acks != -1:
            callback({partition: PartitionResponse(Errors.NONE, base)})
            return
        self.held.append(lambda error: callback({partition: PartitionResponse(error, -1 if error else base)}))

    def release(self, error: Errors = Errors.NONE) -> None:
        held, self.held = self.held, []
        for answer in held:
            answer(error)


@dataclass
class Answers:
    """The collected arguments of a callback."""

    results: list[Any] = field(default_factory=list)

    def __call__(self, result: Any) -> None:
        self.results.append(result)

    @property
    def waiting(self) -> bool:
        return not self.results

    @property
    def result(self) -> Any:
        assert len(self.results) == 1, f"answered {len(self.results)} times"
        return self.results[0]

    @property
    def error(self) -> Errors:
        return self.result.error


APPEND_ERRORS: Final = (
    (Errors.NOT_ENOUGH_REPLICAS, Errors.COORDINATOR_NOT_AVAILABLE),
    (Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Errors.COORDINATOR_NOT_AVAILABLE),
    (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.COORDINATOR_NOT_AVAILABLE),
    (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_COORDINATOR),
    (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR),
)
"""The errors with which an append may fail, and the errors that clients get whatever was to be stored."""


class Harness:
    """A coordinator that owns every partition of __consumer_offsets, and short methods for its requests."""

    GROUP = "g1"

    def __init__(self, partitions: int = 1, *, elect: bool = True, **config: object) -> None:
        self.clock = ManualClock(START_MONOTONIC_MS, START_WALL_MS - START_MONOTONIC_MS)
        self.timer = ManualTimer(self.clock)
        self.scheduler = ManualScheduler()
        self.appender = FakeAppender()
        self.partitions = partitions
        self.topics = no_topics()
        properties = {name.replace("_", "."): str(value) for name, value in config.items()}
        self.config = BrokerConfig.from_properties({"zookeeper.connect": "z:2181", **properties})
        self.coordinator = self.new_coordinator()
        if elect:
            for partition in range(partitions):
                self.coordinator.on_election(partition, 0)
            self.scheduler.run()

    def new_coordinator(self, metrics: Metrics | None = None) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            self.config,
            1,
            self.appender,
            self.appender.log,
            lambda: self.partitions,
            timer=self.timer.real,
            scheduler=self.scheduler,
            clock=self.clock,
            topics=lambda: self.topics,
            metrics=metrics,
        )
        coordinator.startup()
        return coordinator

    def restart(self, leader_epoch: int = 1) -> None:
        """A new broker takes over with the content of the log."""
        self.coordinator = self.new_coordinator()
        for partition in range(self.partitions):
            self.coordinator.on_election(partition, leader_epoch)
        self.scheduler.run()

    def advance(self, duration_ms: int) -> None:
        self.timer.advance(duration_ms)

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        require_known: bool = False,
        skip: bool = False,
        client_id: str = "client",
    ) -> Answers:
        answers = Answers()
        self.coordinator.join(
            group,
            JoinRequest(
                member_id,
                self.coordinator.new_member_id(client_id, instance),
                instance,
                client_id,
                "/127.0.0.1",
                rebalance_ms,
                session_ms,
                protocol_type,
                protocols,
                answers,
                require_known,
                skip,
            ),
        )
        return answers

    def sync(
        self,
        joined: JoinResult,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        generation: int | None = None,
    ) -> Answers:
        answers = Answers()
        request = SyncRequest(
            joined.member_id,
            joined.generation_id if generation is None else generation,
            instance,
            protocol_type,
            protocol_name,
            assignments or {},
            answers,
        )
        self.coordinator.sync(group, request)
        return answers

    def heartbeat(self, joined: JoinResult, *, group: str = GROUP, instance: str | None = None) -> Errors:
        identity = MemberIdentity(joined.member_id, instance)
        return self.coordinator.heartbeat(group, identity, joined.generation_id)

    def leave(self, *members: MemberIdentity | str, group: str = GROUP) -> list[Errors]:
        identities = [MemberIdentity(m) if isinstance(m, str) else m for m in members]
        results: list[tuple[Errors, list[Errors]]] = []
        self.coordinator.leave(group, identities, lambda error, errors: results.append((error, errors)))
        ((error, errors),) = results
        return [error] if error is not Errors.NONE else errors

    def commit(
        self,
        offsets: dict[TopicPartition, int | OffsetAndMetadata],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
        instance: str | None = None,
    ) -> Answers:
        answers = Answers()
        values = {
            partition: value
            if isinstance(value, OffsetAndMetadata)
            else OffsetAndMetadata(value, -1, "", self.clock.wall_ms())
            for partition, value in offsets.items()
        }
        request = CommitRequest(MemberIdentity(member_id, instance), generation, values, answers)
        self.coordinator.commit(group, request)
        return answers

    @property
    def held_bytes(self) -> int:
        """The coordinator's count of the bytes of all groups."""
        return self.coordinator._memory.held

    def offsets(self, group: str = GROUP) -> dict[TopicPartition, int]:
        error, found = self.coordinator.fetch_offsets(group, None, require_stable=False)
        assert error is Errors.NONE
        return {partition: fetched.offset for partition, fetched in found.items()}

    def state(self, group: str = GROUP) -> str:
        return self.coordinator.describe(group).state

    def stable_group(self, members: int = 1, **join: Any) -> list[JoinResult]:
        """A group with this many members in generation 1, each assigned its own member id; the leader
        is first.
        """
        waiting = [self.join(**join) for _ in range(members)]
        while any(answers.waiting for answers in waiting):
            self.advance(100)
        joined = [answers.result for answers in waiting]
        for result in joined:
            assert result.error is Errors.NONE, result
        joined.sort(key=lambda result: result.member_id != result.leader_id)
        assignments = {result.member_id: result.member_id.encode() for result in joined}
        name = joined[0].protocol_name
        group = join.get("group", self.GROUP)
        for result in reversed(joined):  # the leader last: the others wait for it
            synced = self.sync(
                result,
                assignments if result is joined[0] else {},
                protocol_name=name,
                protocol_type=None,
                group=group,
            )
        assert synced.result.error is Errors.NONE
        return joined


def recounted_bytes(coordinator: GroupCoordinator) -> int:
    """The bytes of all groups, each item weighed again."""
    total = 0
    for cell in coordinator._registry.cells():
        group = cell.group
        if group.state is GroupState.DEAD:
            continue
        total += 0 if group.consumer is None else group.consumer.weight
        total += weights.group_weight(group.group_id) + sum(
            map(weights.pending_weight, group.pending_members)
        )
        for one in group.members.values():
            names = (one.member_id, one.group_instance_id, one.client_id, one.client_host)
            words = weights.words_weight(one.protocols)
            total += weights.member_weight(names, words)
        assigned = sum(len(one.assignment) for one in group.members.values())
        assert group._most_assigned >= assigned
        total += weights.assignments_weight(len(group.members), group._most_assigned)
        offsets = group.offsets
        stored = [offsets._committed, *offsets.in_transactions._appended.values()]
        total += sum(weights.offset_weight(p, kept.value) for some in stored for p, kept in some.items())
        total += sum(weights.offset_weight(p, v) for p, values in offsets._pending.items() for v in values)
    return total


__all__ = ["Answers", "Harness", "MemoryLog", "SyncResult", "recounted_bytes"]
