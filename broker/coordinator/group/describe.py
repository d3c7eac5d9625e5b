"""A group's data for DescribeGroups, ListGroups, OffsetFetch and the lag: copies, made under its lock. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Final, NamedTuple

from broker.coordinator.group.consumer.checks import fetch_error
from broker.coordinator.group.group import Group
from broker.coordinator.group.kinds import CLASSIC, CONSUMER, kind_of, member_count, state_of
from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.states import GroupState
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition

INVALID_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as DescribeGroups shows it; Kafka's MemberSummary. ``metadata`` and ``assignment`` are empty
    unless the group is stable.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as DescribeGroups shows it; Kafka's GroupSummary. ``state`` is Kafka's name of the state, and
    empty with an error.
    """

    error: Errors
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    kind: str = CLASSIC


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """A group's committed offsets, from which its lag is computed. ``left_out`` counts those that did not fit."""

    group_id: str
    state: str
    members: int
    offsets: Mapping[TopicPartition, int]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """A partition as OffsetFetch shows it. The offset is -1 if the group has none."""

    offset: int = INVALID_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: Errors = Errors.NONE


class NotedOffsets(NamedTuple):
    """What :func:`fetched` makes the answer to an OffsetFetch of. A partition without an offset has None."""

    values: Mapping[TopicPartition, OffsetAndMetadata | None]
    unstable: AbstractSet[TopicPartition]


#: The fields of a :class:`MemberDescription`.
MemberFields = tuple[str, str | None, str, str, bytes, bytes]
UNKNOWN_GROUP: Final = GroupDescription(Errors.NONE, GroupState.DEAD.value)
NO_OFFSET: Final = FetchedOffset()
NO_MEMBER: Final[tuple[str | None, int]] = (None, -1)
_UNSTABLE: Final = FetchedOffset(error=Errors.UNSTABLE_OFFSET_COMMIT)
_NOTHING_NOTED: Final = NotedOffsets({}, frozenset())


def note(group: Group) -> tuple[GroupDescription, list[MemberFields]]:
    """The group without its members, and what :func:`with_members` makes these of. That takes several times as long
    and needs no lock. A consumer group is described as Dead, as in Kafka: ConsumerGroupDescribe shows it.
    """
    if group.consumer is not None:
        return UNKNOWN_GROUP, []
    stable = group.state is GroupState.STABLE
    protocol = group.protocol_name if stable else None
    members = [
        (
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.metadata(protocol) if stable else b"",
            m.assignment if stable else b"",
        )
        for m in group.members.values()
    ]
    head = GroupDescription(Errors.NONE, group.state.value, group.protocol_type or "", protocol or "")
    return head, members


def with_members(head: GroupDescription, members: Sequence[MemberFields]) -> GroupDescription:
    """The description of a group and the members that :func:`note` has noted of it."""
    return replace(head, members=tuple(starmap(MemberDescription, members))) if members else head


def overview(group: Group) -> GroupOverview:
    protocol_type = group.protocol_type or "" if group.consumer is None else CONSUMER
    return GroupOverview(group.group_id, protocol_type, state_of(group).value, kind_of(group))


def committed_offsets(group: Group, most: int) -> CommittedOffsets:
    """At most ``most`` of the group's offsets, always the same ones."""
    every = group.offsets.all()
    kept = (
        every if len(every) <= most else {partition: every[partition] for partition in sorted(every)[:most]}
    )
    offsets = {partition: value.offset for partition, value in kept.items()}
    return CommittedOffsets(
        group.group_id, state_of(group).value, member_count(group), offsets, len(every) - len(offsets)
    )


def note_for_member(
    group: Group,
    partitions: Iterable[TopicPartition] | None,
    require_stable: bool,
    member: tuple[str | None, int],
) -> tuple[Errors, NotedOffsets]:
    """As :func:`note_offsets`, for a member's id and epoch. Only consumer groups check them."""
    error = Errors.NONE if group.consumer is None else fetch_error(group.consumer, *member)
    noted = _NOTHING_NOTED if error is not Errors.NONE else note_offsets(group, partitions, require_stable)
    return error, noted


def note_offsets(
    group: Group, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> NotedOffsets:
    """The committed offsets of the partitions (None: all of the group), for :func:`fetched`, which takes ten times as
    long and needs no lock. With ``require_stable``, those that an open transaction may change are unstable (KIP-447).
    """
    if group.state is GroupState.DEAD:
        return NotedOffsets(dict.fromkeys(partitions or ()), frozenset())
    offsets = group.offsets
    if partitions is None:
        return NotedOffsets(offsets.all(), offsets.unstable() if require_stable else frozenset())
    values = {partition: offsets.get(partition) for partition in partitions}
    return NotedOffsets(
        values, frozenset(filter(offsets.is_unstable, values)) if require_stable else frozenset()
    )


def fetched(noted: NotedOffsets) -> dict[TopicPartition, FetchedOffset]:
    """The offsets as OffsetFetch shows them; UNSTABLE_OFFSET_COMMIT for those that are unstable."""
    values, unstable = noted
    return {
        partition: _UNSTABLE if partition in unstable else _fetched(value)
        for partition, value in values.items()
    }


def _fetched(value: OffsetAndMetadata | None) -> FetchedOffset:
    return NO_OFFSET if value is None else FetchedOffset(value.offset, value.leader_epoch, value.metadata)
