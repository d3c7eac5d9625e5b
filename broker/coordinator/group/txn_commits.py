"""TxnOffsetCommit: offsets that a producer commits in its transaction, and the end of such transactions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.coordinator.group.append_errors import commit_error
from broker.coordinator.group.commits import CommitErrors, CommitResponder, accept
from broker.coordinator.group.group import Group
from broker.coordinator.group.membership import check_transactional_commit
from broker.coordinator.group.memory import Admits
from broker.coordinator.group.messages import (
    Append,
    Effects,
    MemberIdentity,
    Moment,
    ProducerOfBatch,
    Reply,
)
from broker.coordinator.group.records import OffsetAndMetadata, encode_offset_key, encode_offset_value
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition


class TransactionalCommit(NamedTuple):
    """A TxnOffsetCommit for one group. Before version 3 it names no member and no generation (-1)."""

    producer: ProducerOfBatch
    member: MemberIdentity
    generation_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    respond: CommitResponder


def commit(group: Group, request: TransactionalCommit, metadata_max_chars: int, admits: Admits) -> Effects:
    """Stores the offsets apart, until the transaction ends. Otherwise as for OffsetCommit."""
    member = request.member
    error = check_transactional_commit(
        group, member.member_id, member.group_instance_id, request.generation_id
    )
    if error is not Errors.NONE:
        return [Reply(request.respond, dict.fromkeys(request.offsets, error))]
    offsets, producer_id = group.offsets.in_transactions, request.producer.producer_id
    accepted, answer = accept(
        request.offsets,
        metadata_max_chars,
        admits,
        lambda partition, value: offsets.growth(producer_id, partition, value),
    )
    if not accepted:
        return [Reply(request.respond, answer)]

    def stored(error: Errors, offset: int, _now: Moment) -> Effects:
        group.offsets.finish_in_transaction(producer_id, accepted, offset if error is Errors.NONE else None)
        return [Reply(request.respond, answer | dict.fromkeys(accepted, commit_error(error)))]

    group.offsets.begin_in_transaction(producer_id, accepted)
    records = tuple(
        (encode_offset_key(group.group_id, partition), encode_offset_value(value))
        for partition, value in accepted.items()
    )
    return [Append(records, stored, producer=request.producer)]


def end(group: Group, _now: Moment, producer_id: int, marker_offset: int, *, committed: bool) -> Effects:
    """Commits or drops the producer's offsets, as its marker says."""
    if group.state is not GroupState.DEAD:
        group.offsets.end_transaction(producer_id, marker_offset, committed=committed)
    return []


def refused(request: TransactionalCommit, error: Errors) -> CommitErrors:
    """The same error for all offsets."""
    return dict.fromkeys(request.offsets, error)
