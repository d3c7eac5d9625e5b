"""A consumer group (KIP-848) as data: its epochs, its members, their targets, and the records that store them.

Pure: :mod:`.heartbeats` decides. Every change also notes its record, so memory and log cannot drift apart.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from broker.coordinator.group.consumer.assignors import NOTHING, Assignment
from broker.coordinator.group.consumer.deadlines import Deadlines
from broker.coordinator.group.consumer.member import ConsumerMember
from broker.coordinator.group.consumer.messages import MatchedAt
from broker.coordinator.group.consumer.records import (
    TOMBSTONE_ORDER,
    ConsumerGroupKey,
    CurrentAssignmentRecord,
    KeyKind,
    MemberMetadataRecord,
    ResolvedRegexRecord,
    TopicRecord,
    encode_current,
    encode_epoch,
    encode_key,
    encode_member,
    encode_regex,
    encode_target,
    encode_topics,
)
from broker.coordinator.group.consumer.unstored import Unstored
from broker.coordinator.group.consumer.weights import (
    GROUP_WEIGHT,
    assignment_weight,
    member_weight,
    regex_weight,
)

# A batch of __consumer_offsets may have a megabyte.
_LARGEST_VALUE: Final = 512 * 1024


class ConsumerGroupState(Enum):
    """The state of a consumer group, with Kafka's names as ConsumerGroupDescribe shows them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """A consumer group; Kafka's ConsumerGroup. Part of a :class:`~broker.coordinator.group.group.Group`, which has
    the offsets.

    Invariants: ``member_epoch <= assignment_epoch <= epoch`` for every member. A partition has at most one holder:
    the member to which it is assigned, or which has still to revoke it. ``static_members`` names members only.
    Only members have a target. ``unstored`` has the records in which memory and log differ. ``awaited``, ``sessions``
    and ``revocations`` name members only. ``weight`` is the memory of it all.
    """

    __slots__ = (
        "_classic",
        "_holders",
        "_reconciled",
        "_regex_users",
        "_subscribers",
        "_unused_regexes",
        "assignment_epoch",
        "awaited",
        "epoch",
        "group_id",
        "matched_at",
        "members",
        "regexes",
        "revocations",
        "revoking_from",
        "sessions",
        "static_members",
        "targets",
        "topics",
        "topics_version",
        "unstored",
        "weight",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.topics: Mapping[str, TopicRecord] = {}
        #: The topics that the members' regular expressions match.
        self.regexes: dict[str, frozenset[str]] = {}
        #: The topics and rights by which they were matched. One that was read from the log has none.
        self.matched_at: dict[str, MatchedAt] = {}
        #: The version of the cluster's topics from which ``topics`` was computed.
        self.topics_version = -1
        self.unstored = Unstored()
        #: When each member's session ends, and until when and from which epoch it must revoke. Monotonic.
        self.sessions = Deadlines()
        self.revocations = Deadlines()
        self.revoking_from: dict[str, int] = {}
        #: Until when a classic member must send the JoinGroup or SyncGroup that is due. Monotonic.
        self.awaited = Deadlines()
        self.weight = GROUP_WEIGHT
        self._holders: dict[tuple[uuid.UUID, int], str] = {}
        self._subscribers: Counter[str] = Counter()
        self._regex_users: Counter[str] = Counter()
        self._unused_regexes: set[str] = set()  # those that may have lost their last member
        self._reconciled = 0
        self._classic = 0

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._reconciled < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def classic_members(self) -> int:
        """How many members use the classic protocol."""
        return self._classic

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(self._subscribers)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._subscribers

    def is_free(self, topic: uuid.UUID, partition: int) -> bool:
        """Whether no member holds the partition."""
        return (topic, partition) not in self._holders

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    # -- changes

    def put(self, member: ConsumerMember) -> None:
        """Adds or replaces a member."""
        before = self.members.get(member.member_id)
        known = before or ConsumerMember(member.member_id)
        if before is None or metadata_of(before) != metadata_of(member):
            self._note(KeyKind.MEMBER_METADATA, encode_member(metadata_of(member)), member.member_id)
        if current_of(known) != current_of(member):
            self._note(KeyKind.CURRENT_MEMBER, encode_current(current_of(member)), member.member_id)
        self._replace(before, member)

    def remove(self, member_id: str) -> None:
        """Removes a member, its target and its deadlines."""
        member = self.members[member_id]
        for kind in TOMBSTONE_ORDER[:3]:
            self._note(kind, None, member_id)
        self._replace(member, None)
        self.weight -= assignment_weight(self.targets.pop(member_id, NOTHING))
        self.sessions.drop(member_id)
        self.awaited.drop(member_id)
        self.end_revocation(member_id)

    def replace_static(self, old_id: str, member: ConsumerMember) -> None:
        """Replaces a static member by its successor, which takes over target and assignment."""
        target = self.target_of(old_id)
        self.remove(old_id)
        self.put(member)
        self.set_target(member.member_id, target)

    def set_target(self, member_id: str, target: Assignment) -> None:
        before = self.targets.get(member_id)
        if before == target:
            return
        self.targets[member_id] = target
        self.weight += assignment_weight(target) - assignment_weight(before or NOTHING)
        self._note(KeyKind.TARGET_MEMBER, encode_target(target), member_id)

    def set_topics(self, topics: Mapping[str, TopicRecord]) -> None:
        """Sets what is known of the subscribed topics."""
        self.topics = topics
        self._note(KeyKind.PARTITION_METADATA, _if_it_fits(encode_topics(topics.values())))

    def set_regex(self, regex: str, names: frozenset[str], seen: MatchedAt | None, wall_ms: int) -> None:
        """Sets the topics that a regular expression matches, for all members that have it. Without ``seen`` the next
        heartbeat matches again.
        """
        if seen is not None:
            self.matched_at[regex] = seen
        before = self.regexes.get(regex)
        if before == names:
            return
        self.regexes[regex] = names
        self.weight += regex_weight(regex, names) - (0 if before is None else regex_weight(regex, before))
        version = 0 if seen is None else seen.topics_version
        resolved = ResolvedRegexRecord(tuple(sorted(names)), version, wall_ms)
        self._note(KeyKind.REGULAR_EXPRESSION, _if_it_fits(encode_regex(resolved)), regex)
        for member in list(self.members.values()):
            if member.subscribed_regex == regex and member.matched_names != names:
                self.put(replace(member, matched_names=names))

    def drop_unused_regexes(self) -> None:
        for regex in self._unused_regexes:
            if regex in self.regexes and regex not in self._regex_users:
                self.matched_at.pop(regex, None)
                self.weight -= regex_weight(regex, self.regexes.pop(regex))
                self._note(KeyKind.REGULAR_EXPRESSION, None, regex)
        self._unused_regexes.clear()

    def bump_epoch(self) -> None:
        self.epoch += 1
        self._note(KeyKind.GROUP_METADATA, encode_epoch(self.epoch))

    def set_assignment_epoch(self, epoch: int) -> None:
        self.assignment_epoch = epoch
        self._reconciled = sum(member.is_reconciled_to(epoch) for member in self.members.values())
        self._note(KeyKind.TARGET_METADATA, encode_epoch(epoch))

    def note_epochs(self) -> None:
        """Notes the epochs of a group that has taken them over."""
        self._note(KeyKind.GROUP_METADATA, encode_epoch(self.epoch))
        self.set_assignment_epoch(self.assignment_epoch)

    def end(self) -> None:
        """Removes all members and notes the tombstones of the group."""
        for member_id in list(self.members):
            self.remove(member_id)
        self.drop_unused_regexes()
        for kind in TOMBSTONE_ORDER[-3:]:
            self._note(kind, None)

    def _note(self, kind: KeyKind, value: bytes | None, name: str = "") -> None:
        self.unstored.note(encode_key(ConsumerGroupKey(kind, self.group_id, name)), value)

    # -- loading

    def load_member(self, member: ConsumerMember) -> None:
        """Adds a stored member. A partition that two members hold by the log belongs to the later one."""
        self._replace(self.members.get(member.member_id), member)

    def load_regex(self, regex: str, names: frozenset[str]) -> None:
        self.regexes[regex] = names
        self._unused_regexes.add(regex)
        self.weight += regex_weight(regex, names)

    def load(
        self, epochs: tuple[int, int], topics: Iterable[TopicRecord], targets: Mapping[str, Assignment]
    ) -> None:
        """Sets what is stored of the group apart from its members, which are loaded before."""
        self.epoch, self.assignment_epoch = epochs
        self.topics = {topic.name: topic for topic in topics}
        self.targets = {
            member_id: target for member_id, target in targets.items() if member_id in self.members
        }
        self.weight += sum(map(assignment_weight, self.targets.values()))
        self._reconciled = sum(
            member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )

    @property
    def is_whole(self) -> bool:
        """Whether its records fit together. Those of one change are several batches, of which some may be missing."""
        epochs = [member.member_epoch for member in self.members.values()]
        if max(epochs, default=0) > self.assignment_epoch or self.assignment_epoch > self.epoch:
            return False
        if self.epoch > self.assignment_epoch:
            return True  # the targets are computed again anyway
        targets = Counter(
            (topic, number)
            for target in self.targets.values()
            for topic, numbers in target.items()
            for number in numbers
        )
        wanted = sum(topic.partitions for name, topic in self.topics.items() if self.is_subscribed(name))
        return not self.members or (len(targets) >= wanted and targets.total() == len(targets))

    def repair_epoch(self) -> None:
        """Raises the epoch above all others, so that the targets are computed with the next request."""
        epochs = [member.member_epoch for member in self.members.values()]
        self.epoch = max(self.epoch, self.assignment_epoch, *epochs, 0)
        self.bump_epoch()

    # -- deadlines

    def next_deadline_ms(self) -> int:
        """The earliest deadline."""
        return min(self.sessions.next_ms(), self.awaited.next_ms(), self.revocations.next_ms())

    def begin_revocation(self, member: ConsumerMember, due_ms: int) -> None:
        """Until then the member must have revoked, if its epoch is the same then."""
        self.revocations.set(member.member_id, due_ms)
        self.revoking_from[member.member_id] = member.member_epoch

    def end_revocation(self, member_id: str) -> None:
        self.revocations.drop(member_id)
        self.revoking_from.pop(member_id, None)

    def take_late(self, now_ms: int) -> list[ConsumerMember]:
        """Takes out the deadlines that have passed. Returns the members to be removed, each once."""
        late = dict.fromkeys(self.sessions.take_late(now_ms) + self.awaited.take_late(now_ms))
        for member_id in self.revocations.take_late(now_ms):
            if self.revoking_from.pop(member_id) == self.members[member_id].member_epoch:
                late[member_id] = None
        return [self.members[member_id] for member_id in late]

    # -- internal

    def _replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Exchanges a member in all that is derived from the members."""
        if before is not None:
            self._take_out(before)
        if after is not None:
            self._put_in(after)
        elif before is not None:
            del self.members[before.member_id]

    def _take_out(self, member: ConsumerMember) -> None:
        member_id = member.member_id
        self.weight -= member_weight(member)
        self._reconciled -= member.is_reconciled_to(self.assignment_epoch)
        self._classic -= member.classic is not None
        for partition in _held(member):
            if self._holders.get(partition) == member_id:
                del self._holders[partition]
        for name in member.topics:
            self._subscribers[name] -= 1
            if not self._subscribers[name]:
                del self._subscribers[name]
        if member.subscribed_regex:
            self._regex_users[member.subscribed_regex] -= 1
            if not self._regex_users[member.subscribed_regex]:
                del self._regex_users[member.subscribed_regex]
                self._unused_regexes.add(member.subscribed_regex)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _put_in(self, member: ConsumerMember) -> None:
        member_id = member.member_id
        self.members[member_id] = member
        self.weight += member_weight(member)
        self._reconciled += member.is_reconciled_to(self.assignment_epoch)
        self._classic += member.classic is not None
        self._holders.update(dict.fromkeys(_held(member), member_id))
        self._subscribers.update(member.topics)
        if member.subscribed_regex:
            self._regex_users[member.subscribed_regex] += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id


def _if_it_fits(value: bytes) -> bytes | None:
    """The value of a record about thousands of topics. One that is too large is left out: it can be computed again, and
    a new coordinator then raises the epoch once.
    """
    return value if len(value) <= _LARGEST_VALUE else None


def metadata_of(member: ConsumerMember) -> MemberMetadataRecord:
    return MemberMetadataRecord(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(member.subscribed_names)),
        member.subscribed_regex,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.classic,
    )


def current_of(member: ConsumerMember) -> CurrentAssignmentRecord:
    return CurrentAssignmentRecord(
        member.member_epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.pending_revocation,
    )


def _held(member: ConsumerMember) -> list[tuple[uuid.UUID, int]]:
    return [
        (topic, number)
        for assignment in (member.assigned, member.pending_revocation)
        for topic, numbers in assignment.items()
        for number in numbers
    ]
