"""A group as data: a classic group's state, members, generation and protocol vote, and the committed offsets.

Pure: time is passed in as a value, and there is no IO. :mod:`.joining`, :mod:`.membership` and
:mod:`.rebalance` decide what happens on a request or a deadline. The coordinator handles locks, timers and
the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.unstored import Unstored
from broker.coordinator.group.member import NEW_MEMBER_JOIN_TIMEOUT_MS, Member
from broker.coordinator.group.messages import NEVER_MS, JoinCallback, JoinedMember, JoinResult, Moment
from broker.coordinator.group.offsets import GroupOffsets
from broker.coordinator.group.records import GroupRecord, subscribed_topics
from broker.coordinator.group.states import TRANSITIONS, GroupState, InvalidGroupTransition
from broker.coordinator.group.weights import assignments_weight, group_weight, pending_weight
from broker.protocol.errors import Errors

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class Group:
    """A classic consumer group; Kafka's GroupMetadata. The coordinator's lock for the group owns it.

    Invariants: the leader is a member. ``static_members`` names members only. All members support the
    selected protocol. The generation never decreases. In PreparingRebalance there is a join deadline.
    ``wake_at_ms`` (monotonic) is never later than the earliest deadline in the group. ``weight`` is the
    memory of everything the group holds (:mod:`.weights`), so members are changed only by methods of
    the group.
    """

    __slots__ = (
        "_awaiting_join",
        "_members_weight",
        "_most_assigned",
        "_own_weight",
        "_support",
        "consumer",
        "generation_id",
        "group_id",
        "initial_delay_left_ms",
        "join_deadline_ms",
        "leader_id",
        "leftover",
        "members",
        "new_member_added",
        "offsets",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "sync_deadline_ms",
        "wake_at_ms",
    )

    def __init__(self, group_id: str, created_at: Moment) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = created_at.wall_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        self.pending_sync: dict[str, None] = {}  # an empty set takes three times as much memory
        self.new_member_added = False
        self.join_deadline_ms: int | None = None
        self.initial_delay_left_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.wake_at_ms = NEVER_MS
        self.offsets = GroupOffsets()
        #: The members by KIP-848; None in a classic group.
        self.consumer: ConsumerGroup | None = None
        #: In a classic group that was a consumer group: its tombstones that are not in the log yet.
        self.leftover: Unstored | None = None
        self._awaiting_join = 0
        self._support: Counter[str] = Counter()
        self._own_weight = group_weight(group_id)
        self._members_weight = 0
        # The most bytes of assignments since the group last had no members. This memory stays counted during
        # a rebalance, and however the assignments are then divided among the members.
        self._most_assigned = 0

    @classmethod
    def from_record(cls, group_id: str, record: GroupRecord, now: Moment) -> Group:
        """A group as it was stored, with new sessions for all members."""
        group = cls(group_id, now)
        group.state = GroupState.STABLE if record.members else GroupState.EMPTY
        group.generation_id = record.generation_id
        group.protocol_name = record.protocol
        for member_record in record.members:
            member = Member.from_record(member_record, record.protocol)
            group.add(member, None)
            group.extend_session(member, now)
        group._most_assigned = sum(map(len, group.assignments().values()))
        group.protocol_type = record.protocol_type or None
        group.leader_id = record.leader if record.leader in group.members else group.leader_id
        group.state_timestamp_ms = record.state_timestamp_ms if record.state_timestamp_ms >= 0 else None
        return group

    def to_record(self, assignments: Mapping[str, bytes]) -> GroupRecord:
        """The record to store, with these assignments. Members without one get an empty assignment."""
        protocol = self.protocol_name if self.members else None
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol=protocol,
            leader=self.leader_id if self.members else None,
            state_timestamp_ms=-1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=tuple(
                member.to_record(protocol or "", assignments.get(member_id, b""))
                for member_id, member in self.members.items()
            ),
        )

    def transition_to(self, state: GroupState, now: Moment) -> None:
        """Raises :class:`InvalidGroupTransition`."""
        if state not in TRANSITIONS[self.state]:
            raise InvalidGroupTransition(f"group {self.group_id}: {self.state.value} -> {state.value}")
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def restart_in(self, state: GroupState, now: Moment) -> None:
        """Sets the state of a group that has just changed its protocol. The table is for groups that keep it."""
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def clear_generation(self, now: Moment) -> None:
        """Forgets generation, protocol and deadlines of a group whose members have moved into a consumer group."""
        self.restart_in(GroupState.EMPTY, now)
        self.generation_id = 0
        self.protocol_type = self.protocol_name = None
        self.join_deadline_ms = self.sync_deadline_ms = self.initial_delay_left_ms = None
        self.new_member_added = False
        self.pending_sync.clear()

    @property
    def weight(self) -> int:
        """The group's memory in bytes. A dead group counts as 0, because it is about to be removed."""
        if self.state is GroupState.DEAD:
            return 0
        assignments = assignments_weight(len(self.members), self._most_assigned)
        consumer = 0 if self.consumer is None else self.consumer.weight
        return self._own_weight + self._members_weight + assignments + self.offsets.weight + consumer

    @property
    def can_rebalance(self) -> bool:
        return GroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    @property
    def is_rebalancing(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join

    @property
    def all_have_joined(self) -> bool:
        return self._awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members'. Kafka takes any number from a client, a negative one too."""
        return max([0, *[member.rebalance_timeout_ms for member in self.members.values()]])

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def assignments(self) -> dict[str, bytes]:
        return {member_id: member.assignment for member_id, member in self.members.items()}

    # -- members

    def add(self, member: Member, respond: JoinCallback | None) -> None:
        """Adds a member. The first member sets the group's protocol type and becomes its leader."""
        if member.member_id in self.members:
            raise ValueError(f"{member.member_id} is already a member of {self.group_id}")
        self.members[member.member_id] = member
        self._support.update({name for name, _ in member.protocols})
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.forget_pending(member.member_id)
        self._weigh(member)
        if respond is not None:
            self.await_join(member, respond)

    def remove(self, member_id: str) -> None:
        """Removes the member (or pending member). If it led, the oldest remaining member becomes
        the leader.
        """
        self.forget_pending(member_id)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._members_weight -= member.weight
        if not self.members:
            self._most_assigned = 0
        self._withdraw_support(member)
        self._awaiting_join -= member.awaiting_join is not None
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Gives a static member that came back its new member id."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self._weigh(member)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._withdraw_support(member)
        self._support.update({name for name, _ in protocols})
        member.set_protocols(protocols)
        self._weigh(member)

    def _withdraw_support(self, member: Member) -> None:
        """Takes the time of this member's protocols. Counter's ``-=`` looks at those of all members."""
        for name in {name for name, _ in member.protocols}:
            if self._support[name] > 1:
                self._support[name] -= 1
            else:
                del self._support[name]

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Sets each member's assignment. Members without one get an empty assignment."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._most_assigned = max(self._most_assigned, self._assigned_by(assignments))

    def growth_by(self, assignments: Mapping[str, bytes]) -> int:
        """How many more bytes the group would count with these assignments."""
        size = len(self.members)
        held = assignments_weight(size, self._most_assigned)
        return assignments_weight(size, self._assigned_by(assignments)) - held

    def _assigned_by(self, assignments: Mapping[str, bytes]) -> int:
        return sum(len(assignments.get(member_id, b"")) for member_id in self.members)

    def _weigh(self, member: Member) -> None:
        weight = member.weight_with(member.words)
        self._members_weight += weight - member.weight
        member.weight = weight

    def await_join(self, member: Member, respond: JoinCallback) -> None:
        self._awaiting_join += member.awaiting_join is None
        member.awaiting_join = respond

    def take_join(self, member: Member) -> JoinCallback | None:
        """Returns the member's waiting JoinGroup callback and clears it."""
        respond, member.awaiting_join = member.awaiting_join, None
        self._awaiting_join -= respond is not None
        return respond

    def identity_error(self, member_id: str, group_instance_id: str | None) -> Errors | None:
        """The error if this is not a member (any more): unknown, or fenced by a newer holder of its
        instance id.
        """
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return Errors.UNKNOWN_MEMBER_ID
            if current != member_id:
                return Errors.FENCED_INSTANCE_ID
        return None if member_id in self.members else Errors.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it rejoined; otherwise the oldest member that rejoined leads. Returns False if
        no member did.
        """
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    # -- protocols and generations

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether the group would still have a common protocol with a member that supports these."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self._support[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol for the next generation. Each member votes for the first of its protocols that all
        members support. Ties go to the name that sorts first.
        """
        size = len(self.members)
        fewest = min(self.members.values(), key=lambda member: len(member.protocols))
        candidates = frozenset(name for name, _ in fewest.protocols if self._support[name] == size)
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], name))

    def next_generation(self, now: Moment) -> None:
        self.generation_id += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if their metadata is not a consumer's.

        This is not cached: the set needs many times the memory of the metadata.
        """
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        try:
            subscriptions = [m.metadata(self.protocol_name) for m in self.members.values()]
            return frozenset().union(*(subscribed_topics(one) for one in subscriptions))
        except MalformedRecord:
            return None

    def join_result(self, member: Member, *, leader_id: str | None = None, skip: bool = False) -> JoinResult:
        """The JoinGroup result of the current generation for one member. The leader gets all
        members' metadata.
        """
        leader_id = self.leader_id if leader_id is None else leader_id
        return JoinResult(
            member.member_id,
            Errors.NONE,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            leader_id or "",
            skip,
            self.joined_members() if leader_id == member.member_id else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    # -- deadlines

    def extend_session(self, member: Member, now: Moment) -> None:
        """Extends the member's session after a sign of life."""
        self._set_session(member, now.monotonic_ms + member.session_timeout_ms)

    def await_new_member(self, member: Member, now: Moment) -> None:
        member.is_new = True
        self._set_session(member, now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def add_pending_member(self, member_id: str, deadline_ms: int) -> None:
        if member_id not in self.pending_members:
            self._members_weight += pending_weight(member_id)
        self.pending_members[member_id] = deadline_ms
        self.wake_by(deadline_ms)

    def forget_pending(self, member_id: str) -> None:
        if self.pending_members.pop(member_id, None) is not None:
            self._members_weight -= pending_weight(member_id)

    def wake_by(self, deadline_ms: int) -> None:
        self.wake_at_ms = min(self.wake_at_ms, deadline_ms)

    def compute_wake(self) -> None:
        """Sets ``wake_at_ms`` to the earliest deadline. It visits all members, so it is called only after a
        deadline has passed.
        """
        deadlines = [m.deadline_ms for m in self.members.values() if m.deadline_ms is not None]
        deadlines += self.pending_members.values()
        deadlines += [d for d in (self.join_deadline_ms, self.sync_deadline_ms) if d is not None]
        self.wake_at_ms = min(deadlines, default=NEVER_MS)

    def _set_session(self, member: Member, deadline_ms: int) -> None:
        member.deadline_ms = deadline_ms
        self.wake_at_ms = min(self.wake_at_ms, deadline_ms)
