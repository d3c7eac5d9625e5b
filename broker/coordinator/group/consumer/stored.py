"""Reads a consumer group from its records: later records win, tombstones remove. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import ConsumerMember, MemberState
from broker.coordinator.group.consumer.records import (
    TOMBSTONE_ORDER,
    ConsumerGroupKey,
    CurrentAssignmentRecord,
    KeyKind,
    MemberMetadataRecord,
    ResolvedRegexRecord,
    TopicRecord,
    decode_current,
    decode_epoch,
    decode_member,
    decode_regex,
    decode_target,
    decode_topics,
)

_DECODERS: dict[KeyKind, Callable[[bytes], Any]] = {
    KeyKind.GROUP_METADATA: decode_epoch,
    KeyKind.PARTITION_METADATA: decode_topics,
    KeyKind.MEMBER_METADATA: decode_member,
    KeyKind.TARGET_METADATA: decode_epoch,
    KeyKind.TARGET_MEMBER: decode_target,
    KeyKind.CURRENT_MEMBER: decode_current,
    KeyKind.REGULAR_EXPRESSION: decode_regex,
}


class StoredConsumerGroup:
    """The records of one consumer group, as far as they have been read."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._values: dict[KeyKind, dict[str, Any]] = {kind: {} for kind in KeyKind}

    def feed(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        """Takes one record. Raises :class:`MalformedRecord`."""
        if value is None:
            self._values[key.kind].pop(key.name, None)
        else:
            self._values[key.kind][key.name] = _DECODERS[key.kind](value)

    @property
    def exists(self) -> bool:
        """Whether there is such a group: it has an epoch."""
        return bool(self._values[KeyKind.GROUP_METADATA])

    def restore(self) -> ConsumerGroup:
        """The group. One of which not all records were written gets a new epoch, so that it is assigned again."""
        group = ConsumerGroup(self._group_id)
        members: dict[str, MemberMetadataRecord] = self._values[KeyKind.MEMBER_METADATA]
        currents: dict[str, CurrentAssignmentRecord] = self._values[KeyKind.CURRENT_MEMBER]
        targets: dict[str, Assignment] = self._values[KeyKind.TARGET_MEMBER]
        topics: tuple[TopicRecord, ...] = self._values[KeyKind.PARTITION_METADATA].get("", ())
        epoch: int = self._values[KeyKind.GROUP_METADATA].get("", 0)
        assignment_epoch: int = self._values[KeyKind.TARGET_METADATA].get("", 0)
        regexes: dict[str, ResolvedRegexRecord] = self._values[KeyKind.REGULAR_EXPRESSION]
        for member_id, metadata in members.items():
            resolved = regexes.get(metadata.subscribed_regex or "")
            names = frozenset(resolved.topics) if resolved is not None else frozenset[str]()
            group.load_member(_member(member_id, metadata, currents.get(member_id), names))
        # One without a record is matched with the next heartbeat.
        wanted = {metadata.subscribed_regex for metadata in members.values() if metadata.subscribed_regex}
        for regex in sorted(wanted | regexes.keys()):
            group.load_regex(regex, frozenset(regexes[regex].topics) if regex in regexes else frozenset())
        group.load((epoch, assignment_epoch), topics, targets)
        if not group.is_whole:
            group.repair_epoch()
        return group

    def keys(self) -> list[ConsumerGroupKey]:
        """The keys of its records, in the order in which Kafka reads their tombstones."""
        return [
            ConsumerGroupKey(kind, self._group_id, name)
            for kind in TOMBSTONE_ORDER
            for name in self._values[kind]
        ]


def _member(
    member_id: str,
    metadata: MemberMetadataRecord,
    current: CurrentAssignmentRecord | None,
    matched_names: frozenset[str] = frozenset(),
) -> ConsumerMember:
    """A member as it was stored."""
    member = ConsumerMember(
        member_id,
        metadata.instance_id,
        metadata.rack_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        frozenset(metadata.subscribed_names),
        metadata.subscribed_regex,
        metadata.server_assignor,
        matched_names=matched_names,
        classic=metadata.classic,
    )
    if current is None:
        return member
    known = current.state in set(MemberState)
    return replace(
        member,
        member_epoch=current.member_epoch,
        previous_epoch=current.previous_epoch,
        state=MemberState(current.state) if known else MemberState.UNKNOWN,
        assigned=current.assigned,
        pending_revocation=current.pending_revocation,
    )
