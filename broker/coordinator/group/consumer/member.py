"""A member of a consumer group (KIP-848), and the reconciliation of its assignment with the target. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from broker.coordinator.group.consumer.assignors import NOTHING, Assignment
from broker.coordinator.group.consumer.records import ClassicMemberRecord

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
NO_REBALANCE_TIMEOUT: Final = -1

# Whether no member has the partition, and none has still to revoke it.
IsFree = Callable[[uuid.UUID, int], bool]


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. The numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it must revoke partitions before it may go to the next epoch
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others have not revoked yet
    UNKNOWN = 127  # a state of a later Kafka


class FencedMember(Exception):
    """The member must abandon all its partitions and join again."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group; Kafka's ConsumerGroupMember.

    Invariants: ``assigned`` and ``pending_revocation`` have no partition in common. Only in
    UNREVOKED_PARTITIONS is something pending. ``previous_epoch`` is the epoch before the last change, which
    the member may still use if the response with the new one was lost.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    server_assignor: str | None = None
    member_epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    pending_revocation: Assignment = field(default_factory=lambda: NOTHING)
    matched_names: frozenset[str] = frozenset()  # by the regular expression; not part of its records
    classic: ClassicMemberRecord | None = None  # what it said in JoinGroup, if it uses the classic protocol

    @property
    def topics(self) -> frozenset[str]:
        """The names of the topics to which it is subscribed, by name or by the regular expression."""
        return self.subscribed_names | self.matched_names if self.matched_names else self.subscribed_names

    @property
    def texts(self) -> tuple[str | None, ...]:
        """What its client says of it that may be long, without the names of topics: sizes go by it."""
        return (
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_regex,
        )

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def has_left_for_now(self) -> bool:
        """Whether it is a static member whose client has stopped and is expected back."""
        return self.member_epoch == STATIC_LEAVE_EPOCH

    def accepts(self, epoch: int, owned: Assignment | None) -> bool:
        """Whether a request with this epoch is the member's: the current epoch, or the previous one together with
        no more partitions than it may have.
        """
        if epoch == self.member_epoch:
            return True
        return epoch == self.previous_epoch < self.member_epoch and is_subset(owned, self.assigned)

    def reconciled(
        self, target_epoch: int, target: Assignment, owned: Assignment | None, is_free: IsFree
    ) -> ConsumerMember:
        """The member one step nearer to its target. ``owned``: the partitions that its client reports, None if it
        does not. Raises :class:`FencedMember`.

        First it revokes, then its epoch rises, then it gets those partitions that are free.
        """
        if self.is_reconciled_to(target_epoch):
            return self
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if may_own(owned, self.pending_revocation):
                return self
            return self._next(self.member_epoch + 1, target_epoch, target, owned, is_free)
        if self.state is MemberState.UNKNOWN:
            if owned is None or any(owned.values()):
                raise FencedMember
            return self._next(target_epoch, target_epoch, target, owned, is_free)
        return self._next(self.member_epoch, target_epoch, target, owned, is_free)

    def _next(
        self, epoch: int, target_epoch: int, target: Assignment, owned: Assignment | None, is_free: IsFree
    ) -> ConsumerMember:
        keeps = _intersection(self.assigned, target)
        revokes = difference(self.assigned, target)
        if revokes and may_own(owned, revokes):
            return self._at(epoch, MemberState.UNREVOKED_PARTITIONS, keeps, revokes)
        wants = difference(target, keeps)
        gets = {
            topic: free
            for topic, numbers in wants.items()
            if (free := frozenset(number for number in numbers if is_free(topic, number)))
        }
        waits = difference(wants, gets)
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return self._at(target_epoch, state, union(keeps, gets))

    def _at(
        self, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment = NOTHING
    ) -> ConsumerMember:
        return replace(
            self,
            member_epoch=epoch,
            previous_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )


def may_own(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the client may still have one of the partitions. One that reports nothing may have them all."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(owned.get(topic, frozenset())) for topic, numbers in partitions.items())


def is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    if owned is None:
        return False
    return all(numbers <= assigned.get(topic, frozenset()) for topic, numbers in owned.items())


def union(one: Assignment, other: Assignment) -> Assignment:
    if not other:
        return one
    return {**one, **{topic: one.get(topic, frozenset()) | numbers for topic, numbers in other.items()}}


def difference(one: Assignment, other: Assignment) -> Assignment:
    return {
        topic: rest for topic, numbers in one.items() if (rest := numbers - other.get(topic, frozenset()))
    }


def _intersection(one: Assignment, other: Assignment) -> Assignment:
    return {
        topic: both for topic, numbers in one.items() if (both := numbers & other.get(topic, frozenset()))
    }
