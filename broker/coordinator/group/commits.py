"""OffsetCommit, and the removal of offsets and groups: expiry, deleted topics, OffsetDelete, DeleteGroups.

It is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from broker.coordinator.group.append_errors import commit_error
from broker.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, Group
from broker.coordinator.group.kinds import is_vacant
from broker.coordinator.group.membership import check_commit
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import (
    NEVER_MS,
    Append,
    AppendDone,
    Effects,
    MemberIdentity,
    Moment,
    Reply,
    first_error,
)
from broker.coordinator.group.records import (
    OffsetAndMetadata,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition

_TOMBSTONES_PER_APPEND: Final = 1_000
_MAX_STRING_BYTES: Final = 0x7FFF

CommitErrors = dict[TopicPartition, Errors]
CommitResponder = Callable[[CommitErrors], None]
# Gets the group's error and, without one, each partition's.
DeleteOffsetsCallback = Callable[[Errors, CommitErrors], None]


def _nothing_follows(_error: Errors, _offset: int, _now: Moment) -> Effects:
    return []


class CommitRequest(NamedTuple):
    """An OffsetCommit for one group. Without a member and with ``generation_id`` -1 it comes from a client
    that does not use group membership. ``knows_epochs``: its version has member epochs.
    """

    member: MemberIdentity
    generation_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    respond: CommitResponder
    knows_epochs: bool = True


def commit(
    group: Group, request: CommitRequest, now: Moment, metadata_max_chars: int, admits: Admits = admits_all
) -> Effects:
    """Stores the offsets. The answer comes when the log has acknowledged them. If the metadata is too long,
    or there is no memory for an offset, only that partition is refused. An offset that replaces one of the
    same weight is never refused.
    """
    error = check_commit(group, request.member, request.generation_id, now, knows_epochs=request.knows_epochs)
    if error is not Errors.NONE:
        return [Reply(request.respond, dict.fromkeys(request.offsets, error))]
    accepted, answer = accept(request.offsets, metadata_max_chars, admits, group.offsets.growth)
    if not accepted:
        return [Reply(request.respond, answer)]

    def stored(error: Errors, offset: int, _now: Moment) -> Effects:
        group.offsets.finish(accepted, offset if error is Errors.NONE else None)
        return [Reply(request.respond, answer | dict.fromkeys(accepted, commit_error(error)))]

    group.offsets.begin(accepted)
    records = tuple(
        (encode_offset_key(group.group_id, partition), encode_offset_value(value))
        for partition, value in accepted.items()
    )
    return [Append(records, stored)]


def accept(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    metadata_max_chars: int,
    admits: Admits,
    growth_of: Callable[[TopicPartition, OffsetAndMetadata], int],
) -> tuple[dict[TopicPartition, OffsetAndMetadata], CommitErrors]:
    """The offsets that can be stored, and the errors of the others. ``growth_of``: how many more bytes an offset
    takes in memory.
    """
    answer: CommitErrors = {}
    accepted: dict[TopicPartition, OffsetAndMetadata] = {}
    added = 0
    for partition, value in offsets.items():
        if value.metadata and not _fits(value.metadata, metadata_max_chars):
            answer[partition] = Errors.OFFSET_METADATA_TOO_LARGE
            continue
        growth = growth_of(partition, value)
        if growth > 0:
            if not admits(added + growth):
                answer[partition] = Errors.INVALID_COMMIT_OFFSET_SIZE
                continue
            added += growth
        accepted[partition] = value
    return accepted, answer


def _fits(metadata: str, max_chars: int) -> bool:
    return len(metadata) <= max_chars and len(metadata.encode()) <= _MAX_STRING_BYTES


def expire(group: Group, now: Moment, retention_ms: int, forget: Callable[[], None]) -> Effects:
    """Removes expired offsets (KIP-211), and the group itself if it has become empty.

    ``forget`` is called when a dead group's tombstones are written.
    """
    return _drop(group, _expired(group, now, retention_ms), now, forget)


def _expired(group: Group, now: Moment, retention_ms: int) -> list[TopicPartition]:
    if group.consumer is not None:
        return group.offsets.expired(now.wall_ms, retention_ms, subscribed=group.consumer.subscribed_topics)
    if group.protocol_type is None:  # the group never had members: each offset has its own time
        return group.offsets.expired(now.wall_ms, retention_ms)
    if group.state is GroupState.EMPTY:
        return group.offsets.expired(now.wall_ms, retention_ms, unused_since_ms=group.state_timestamp_ms)
    if (
        group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and group.state is GroupState.STABLE
        and group.offsets.expired(now.wall_ms, retention_ms)
    ):
        subscribed = group.subscribed_topics()
        if subscribed is not None:
            return group.offsets.expired(now.wall_ms, retention_ms, subscribed=subscribed)
    return []


def remove_partitions(
    group: Group, now: Moment, deleted: AbstractSet[TopicPartition], forget: Callable[[], None]
) -> Effects:
    """Removes the offsets of deleted partitions. They would be wrong for a new topic of the same name."""
    return _drop(group, group.offsets.among(deleted), now, forget)


def delete_group(
    group: Group, now: Moment, respond: Callable[[Errors], None], forget: Callable[[], None]
) -> Effects:
    """Handles DeleteGroups for one group, which must have no members."""
    if group.state is GroupState.DEAD:
        return [Reply(respond, Errors.GROUP_ID_NOT_FOUND)]
    if not is_vacant(group):
        return [Reply(respond, Errors.NON_EMPTY_GROUP)]

    def done(error: Errors, _offset: int, _now: Moment) -> Effects:
        return [Reply(_call, forget), Reply(respond, commit_error(error))]

    tombstones = _tombstones(group, group.offsets.remove(group.offsets.partitions()))
    tombstones += _die(group, now)
    return _append_all(tombstones, done) or done(Errors.NONE, -1, now)


def delete_offsets(
    group: Group,
    now: Moment,
    partitions: Sequence[TopicPartition],
    respond: DeleteOffsetsCallback,
    forget: Callable[[], None],
) -> Effects:
    """Handles OffsetDelete (KIP-496). Of a consumer group with members, offsets of topics to which a member
    subscribes are kept. A group that has become empty ends, as by :func:`expire`.
    """

    def answer(found: tuple[Errors, CommitErrors]) -> None:
        respond(*found)

    if group.state is GroupState.DEAD:
        return [Reply(answer, (Errors.GROUP_ID_NOT_FOUND, {}))]
    kept: CommitErrors = {}
    if not is_vacant(group):
        if group.consumer is None and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return [Reply(answer, (Errors.NON_EMPTY_GROUP, {}))]
        subscribed = group.subscribed_topics() if group.consumer is None else group.consumer.subscribed_topics
        kept = {
            partition: Errors.GROUP_SUBSCRIBED_TO_TOPIC
            for partition in partitions
            if subscribed is None or partition.topic in subscribed
        }
    deleted = [partition for partition in partitions if partition not in kept]
    if not deleted:
        return [Reply(answer, (Errors.NONE, kept))]

    def done(error: Errors, _offset: int, _now: Moment) -> Effects:
        return [Reply(answer, (Errors.NONE, kept | dict.fromkeys(deleted, commit_error(error))))]

    return _drop(group, deleted, now, forget, done)


def _drop(
    group: Group,
    partitions: Sequence[TopicPartition],
    now: Moment,
    forget: Callable[[], None],
    then: AppendDone = _nothing_follows,
) -> Effects:
    """Removes the offsets, and the group if it is empty now. ``then`` follows the last tombstone."""
    if group.state is GroupState.DEAD:
        return []
    tombstones = _tombstones(group, group.offsets.remove(partitions))
    if not is_vacant(group) or not group.offsets.is_empty or group.pending_members:
        return _append_all(tombstones, then) or then(Errors.NONE, -1, now)
    tombstones += _die(group, now)

    def done(error: Errors, offset: int, later: Moment) -> Effects:
        return [Reply(_call, forget), *then(error, offset, later)]

    return _append_all(tombstones, done) or done(Errors.NONE, -1, now)


def _die(group: Group, now: Moment) -> list[tuple[bytes, None]]:
    """Ends the group. Returns its tombstones: none if the group never had a generation and so has no record."""
    group.transition_to(GroupState.DEAD, now)
    group.pending_members.clear()
    group.wake_at_ms = NEVER_MS
    unstored = group.leftover
    if group.consumer is not None:
        group.consumer.end()
        unstored = group.consumer.unstored
    keys = [] if unstored is None else list(unstored.noted)
    if group.consumer is None and group.generation_id > 0:
        keys.append(encode_group_key(group.group_id))
    return [(key, None) for key in keys]


def _tombstones(group: Group, partitions: Sequence[TopicPartition]) -> list[tuple[bytes, None]]:
    return [(encode_offset_key(group.group_id, partition), None) for partition in partitions]


def _append_all(tombstones: Sequence[tuple[bytes, None]], last: AppendDone) -> Effects:
    """Writes the tombstones in parts, in their order: none after one that failed. ``last`` gets the first error."""
    errors: list[Errors] = []

    def earlier() -> Errors:
        return first_error(errors)

    def written(error: Errors, _offset: int, _now: Moment) -> Effects:
        errors.append(error)
        return []

    chunks = [
        tuple(tombstones[start : start + _TOMBSTONES_PER_APPEND])
        for start in range(0, len(tombstones), _TOMBSTONES_PER_APPEND)
    ]
    return [
        Append(chunk, last if chunk is chunks[-1] else written, required_acks=1, earlier=earlier)
        for chunk in chunks
    ]


def _call(action: Callable[[], None]) -> None:
    action()
