"""A group under random joins, syncs, heartbeats, commits, leaves, silence, failing logs and new coordinators.

The model is a set of consumers that behave as clients do; the invariants are those that consumers rely on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.coordinator.group.group import Group
from broker.coordinator.group.messages import JoinResult, MemberIdentity
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import Answers, Harness, recounted_bytes

TP = TopicPartition("t", 0)
SLOTS = 5
RANGE_ONLY = (("range", b"r"),)
BOTH = (("sticky", b"s"), ("range", b"r"))


@dataclass
class Consumer:
    """One client: what it last learned, and what it waits for."""

    instance: str | None
    joined: JoinResult | None = None
    joining: Answers | None = None
    syncing: Answers | None = None
    assignment: tuple[int, bytes] | None = None
    history: list[int] = field(default_factory=list)

    @property
    def member_id(self) -> str:
        return "" if self.joined is None else self.joined.member_id

    @property
    def idle(self) -> bool:
        return self.joining is None and self.syncing is None


class GroupMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.h = Harness(group_max_size=4)
        self.epoch = 0
        self.consumers = [Consumer(f"i{n}" if n >= 3 else None) for n in range(SLOTS)]
        self.given: dict[int, dict[str, bytes]] = {}
        self.commits: list[tuple[int, bool, Answers]] = []
        self.committed = -1
        self.next_offset = 0

    @property
    def group(self) -> Group | None:
        cell = self.h.coordinator._registry.find(self.h.GROUP)
        return None if cell is None else cell.group

    # What consumers do

    @rule(slot=st.integers(0, SLOTS - 1), both=st.booleans(), known=st.booleans(), skip=st.booleans())
    def join(self, slot: int, both: bool, known: bool, skip: bool) -> None:
        consumer = self.consumers[slot]
        if not consumer.idle:
            return
        consumer.joining = self.h.join(
            consumer.member_id,
            instance=consumer.instance,
            protocols=BOTH if both else RANGE_ONLY,
            require_known=known and consumer.instance is None,
            skip=skip,
            rebalance_ms=20_000,
        )
        self.collect()

    @rule(slot=st.integers(0, SLOTS - 1))
    def sync(self, slot: int) -> None:
        consumer = self.consumers[slot]
        joined = consumer.joined
        if not consumer.idle or joined is None or joined.generation_id < 0:
            return
        assignments = {}
        if joined.leader_id == joined.member_id and not joined.skip_assignment:
            assignments = {
                m.member_id: f"{joined.generation_id}:{m.member_id}".encode() for m in joined.members
            }
            self.given.setdefault(joined.generation_id, {}).update(assignments)
        consumer.syncing = self.h.sync(
            joined, assignments, instance=consumer.instance, protocol_name=joined.protocol_name
        )
        self.collect()

    @rule(slot=st.integers(0, SLOTS - 1), generation_back=st.integers(0, 1))
    def heartbeat(self, slot: int, generation_back: int = 0) -> None:
        consumer = self.consumers[slot]
        joined, group = consumer.joined, self.group
        if joined is None or joined.generation_id < 0:
            return
        joined = JoinResult(joined.member_id, generation_id=joined.generation_id - generation_back)
        error = self.h.heartbeat(joined, instance=consumer.instance)
        if error in (Errors.NONE, Errors.REBALANCE_IN_PROGRESS):
            assert group is not None
            assert joined.generation_id == group.generation_id, "a member of an older generation was served"
            assert joined.member_id in group.members
        if not generation_back:
            self.react(consumer, error)

    @rule(slot=st.integers(0, SLOTS - 1))
    def sync_of_the_last_generation(self, slot: int) -> None:
        joined = self.consumers[slot].joined
        if joined is not None and joined.generation_id >= 0:
            answers = self.h.sync(
                joined, instance=self.consumers[slot].instance, generation=joined.generation_id - 1
            )
            assert answers.error is not Errors.NONE

    @rule(slot=st.integers(0, SLOTS - 1), generation_back=st.integers(0, 2))
    def commit(self, slot: int, generation_back: int) -> None:
        joined, group = self.consumers[slot].joined, self.group
        if joined is None or joined.generation_id < 0 or group is None:
            return
        before = group.generation_id
        generation = joined.generation_id - generation_back
        if generation < 0:
            return
        self.next_offset += 1
        answers = self.h.commit(
            {TP: self.next_offset}, joined.member_id, generation, instance=self.consumers[slot].instance
        )
        self.commits.append((self.next_offset, generation == before, answers))
        self.collect()

    @rule(slot=st.integers(0, SLOTS - 1))
    def leave(self, slot: int) -> None:
        consumer = self.consumers[slot]
        if consumer.joined is None:
            return
        self.h.leave(MemberIdentity(consumer.member_id, consumer.instance))
        self.collect()
        self.consumers[slot] = Consumer(consumer.instance)

    @rule(slot=st.integers(3, SLOTS - 1))
    def restart_static_member(self, slot: int) -> None:
        if self.consumers[slot].idle:
            self.consumers[slot] = Consumer(self.consumers[slot].instance)

    # What happens to them

    @rule(duration_ms=st.sampled_from([10, 500, 3_000, 9_999, 10_000, 20_000, 300_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.h.advance(duration_ms)
        self.collect()

    @rule(slots=st.sets(st.integers(0, SLOTS - 1), min_size=1))
    def consumers_settle(self, slots: set[int]) -> None:
        """They join and sync as clients do, until each has what it can get."""
        for _ in range(2):
            for slot in slots:
                self.join(slot, both=True, known=True, skip=True)
        for _ in range(40):
            if all(self.consumers[slot].idle for slot in slots):
                break
            self.h.advance(500)
            self.collect()
        for slot in slots:
            self.sync(slot)

    @rule()
    def everybody_sends_heartbeats(self) -> None:
        for slot in range(SLOTS):
            self.heartbeat(slot)

    @rule(
        error=st.sampled_from(
            [Errors.NONE, Errors.NONE, Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT]
        )
    )
    def log_changes_its_mood(self, error: Errors) -> None:
        self.h.appender.error = error

    @precondition(lambda self: not self.h.appender.hold)
    @rule()
    def log_becomes_slow(self) -> None:
        self.h.appender.hold = True

    @precondition(lambda self: self.h.appender.hold)
    @rule()
    def log_catches_up(self) -> None:
        self.h.appender.hold = False
        self.h.appender.release()
        self.collect()

    @rule()
    def another_broker_takes_over(self) -> None:
        self.epoch += 1
        self.h.coordinator.on_resignation(0, self.epoch)
        self.collect()
        self.h.restart(self.epoch)
        self.forget_generations()  # those that were not stored are counted again, as in Kafka

    @rule()
    def expired_offsets_are_cleaned(self) -> None:
        self.h.coordinator.delete_expired()
        if self.group is None:
            self.forget_generations()

    def forget_generations(self) -> None:
        for consumer in self.consumers:
            consumer.history.clear()

    # Answers

    def collect(self) -> None:
        waiting = []
        for offset, was_current, answers in self.commits:
            if answers.waiting:
                waiting.append((offset, was_current, answers))
            elif answers.result[TP] is Errors.NONE:
                assert was_current, "a commit of another generation was accepted"
                self.committed = max(self.committed, offset)
        self.commits = waiting
        for consumer in self.consumers:
            if consumer.joining is not None and not consumer.joining.waiting:
                result, consumer.joining = consumer.joining.result, None
                if result.error is Errors.NONE:
                    self.check_generation(consumer, result)
                elif result.error is Errors.MEMBER_ID_REQUIRED:
                    consumer.joined = result
                else:
                    self.react(consumer, result.error)
            if consumer.syncing is not None and not consumer.syncing.waiting:
                result, consumer.syncing = consumer.syncing.result, None
                if result.error is Errors.NONE:
                    self.check_assignment(consumer, result.assignment)
                else:
                    self.react(consumer, result.error)

    def check_generation(self, consumer: Consumer, joined: JoinResult) -> None:
        assert joined.protocol_name in {"range", "sticky"}
        if joined.members:
            ids = [member.member_id for member in joined.members]
            assert joined.leader_id == joined.member_id
            assert joined.member_id in ids
            assert len(ids) == len(set(ids))
        consumer.joined = joined
        consumer.history.append(joined.generation_id)

    def check_assignment(self, consumer: Consumer, assignment: bytes) -> None:
        joined = consumer.joined
        assert joined is not None
        if assignment:
            generation, _, _ = assignment.partition(b":")
            assert int(generation) == joined.generation_id, "an assignment of another generation"
            assert assignment in self.given[joined.generation_id].values(), "not what the leader gave"
        consumer.assignment = (joined.generation_id, assignment)

    def react(self, consumer: Consumer, error: Errors) -> None:
        """As clients do: who is unknown or fenced starts over without its id."""
        if error in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID, Errors.GROUP_MAX_SIZE_REACHED):
            consumer.joined = None
        elif error is Errors.ILLEGAL_GENERATION and consumer.joined is not None:
            consumer.joined = JoinResult(consumer.joined.member_id)

    # Invariants

    @invariant()
    def leader_and_static_members_are_members(self) -> None:
        group = getattr(self, "h", None) and self.group
        if not group:
            return
        assert (group.leader_id in group.members) == bool(group.members)
        assert set(group.static_members.values()) <= set(group.members)
        assert group.pending_sync.keys() <= group.members.keys()
        assert not set(group.pending_members) & set(group.members)
        waiting = sum(m.awaiting_join is not None for m in group.members.values())
        assert group.awaiting_join_count == waiting

    @invariant()
    def state_fits_the_members(self) -> None:
        group = getattr(self, "h", None) and self.group
        if not group:
            return
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.members
            assert all(group.protocol_name in dict(m.protocols) for m in group.members.values())
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.join_deadline_ms is not None
            assert all(m.awaiting_sync is None for m in group.members.values())

    @invariant()
    def stable_members_have_what_the_leader_gave(self) -> None:
        group = getattr(self, "h", None) and self.group
        if not group or group.state is not GroupState.STABLE:
            return
        given = self.given.get(group.generation_id, {})
        for member in group.members.values():
            assert member.awaiting_sync is None
            assert not member.assignment or member.assignment in given.values()

    @invariant()
    def nothing_sleeps_forever(self) -> None:
        group = getattr(self, "h", None) and self.group
        if not group:
            return
        now_ms = self.h.clock.monotonic_ms()
        deadlines = [m.deadline_ms for m in group.members.values() if m.deadline_ms is not None]
        deadlines += group.pending_members.values()
        deadlines += [d for d in (group.join_deadline_ms, group.sync_deadline_ms) if d is not None]
        assert all(group.wake_at_ms <= deadline for deadline in deadlines)
        assert not deadlines or self.h.timer.waiting >= 1
        assert all(deadline >= now_ms for deadline in deadlines), "a deadline came and nothing happened"

    @invariant()
    def generations_only_rise(self) -> None:
        for consumer in getattr(self, "consumers", []):
            assert consumer.history == sorted(consumer.history)

    @invariant()
    def acknowledged_commits_are_kept(self) -> None:
        if getattr(self, "committed", -1) >= 0 and not self.h.coordinator._registry.is_loading:
            assert self.h.offsets().get(TP, -1) >= self.committed

    @invariant()
    def the_account_of_bytes_is_what_a_recount_gives(self) -> None:
        if hasattr(self, "h"):
            assert self.h.held_bytes == recounted_bytes(self.h.coordinator)

    def teardown(self) -> None:
        """When the log works again and time passes, everybody who waits is answered."""
        if not hasattr(self, "h"):
            return
        self.h.appender.error = Errors.NONE
        self.h.appender.hold = False
        self.h.appender.release()
        for _ in range(8):
            self.h.advance(100_000)
        self.collect()
        assert all(consumer.idle for consumer in self.consumers), "a request was never answered"
        assert not self.commits, "a commit was never answered"


GroupMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroup = GroupMachine.TestCase
