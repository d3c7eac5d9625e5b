"""Carries out AlterPartition requests: checks each partition, writes all changes together, then informs
the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from broker.controller.context import ControllerContext
from broker.controller.rules.isr_change import Proposal, answer_of, judge, proposal_of
from broker.controller.rules.states import Replica
from broker.controller.term import Term
from broker.protocol.alter_partition_messages import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.store import BadVersionError
from broker.zookeeper.znodes import LeaderAndIsr

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row of the request: the position of its answer, and its partition (None if the topic does
    not exist).
    """

    topic_position: int
    index: int
    partition: TopicPartition | None
    proposal: Proposal | None


def alter_partitions(term: Term, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Carries out a request of any version. Raises KafkaError STALE_BROKER_EPOCH."""
    known = term.context.broker_epoch(request.broker_id)
    if known is None or request.broker_epoch != known:
        raise KafkaError(
            Errors.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} has epoch {known}, the request says {request.broker_epoch}",
        )
    asked = _asked(term, request)
    outcomes, writes = _judge_all(term, asked, by_id=request.by_id)
    _write(term, writes, outcomes)
    return AlterPartitionResponse(Errors.NONE, _topics(term, request, asked, outcomes))


def _asked(term: Term, request: AlterPartitionRequest) -> list[_Asked]:
    asked = []
    for position, (topic, topic_id, changes) in enumerate(request.topics):
        name = topic if topic_id is None else term.context.topic_names.get(topic_id)
        for change in changes:
            index = change.topic_partition.partition
            partition = TopicPartition(name, index) if name else None
            asked.append(_Asked(position, index, partition, proposal_of(request.broker_id, change)))
    return asked


def _judge_all(
    term: Term, asked: list[_Asked], *, by_id: bool
) -> tuple[dict[tuple[int, int], Errors], dict[TopicPartition, tuple[tuple[int, int], LeaderAndIsr]]]:
    context = term.context
    epochs = {broker_id: live.epoch for broker_id, live in context.brokers.items()}
    outcomes: dict[tuple[int, int], Errors] = {}
    writes: dict[TopicPartition, tuple[tuple[int, int], LeaderAndIsr]] = {}
    for row in asked:
        key = (row.topic_position, row.index)
        if row.partition is None:
            outcomes[key] = Errors.UNKNOWN_TOPIC_ID if by_id else Errors.UNKNOWN_TOPIC_OR_PARTITION
        elif row.proposal is None:
            outcomes[key] = Errors.INVALID_REQUEST
        elif context.is_being_deleted(row.partition.topic):
            outcomes[key] = Errors.UNKNOWN_TOPIC_OR_PARTITION
        else:
            state, live = context.leaders.get(row.partition), _eligible(context, row.partition, row.proposal)
            verdict = judge(row.proposal, state, live, epochs, knows_ineligible=by_id)
            outcomes[key] = verdict.error
            if verdict.new_state is not None:
                writes[row.partition] = (key, verdict.new_state)
    return outcomes, writes


def _eligible(context: ControllerContext, partition: TopicPartition, proposal: Proposal) -> list[int]:
    """The replicas that may be in the ISR: the live ones, and the leader even if it is shutting down.
    Kafka's ZooKeeper controller refuses a leader that is shutting down. Then other replicas could not join
    the ISR, and the leader could never hand over. It would stop when its retries end, and the partition
    would have no leader.
    """
    live = context.online_replicas(partition)
    if context.is_online(Replica(partition, proposal.broker_id), even_shutting_down=True):
        live.append(proposal.broker_id)
    return live


def _write(
    term: Term,
    writes: Mapping[TopicPartition, tuple[tuple[int, int], LeaderAndIsr]],
    outcomes: dict[tuple[int, int], Errors],
) -> None:
    states = {partition: state for partition, (_, state) in writes.items()}
    changed, stale = [], []
    for partition, result in term.store.update_partition_states(term.eligible.noted(states)).items():
        key = writes[partition][0]
        if isinstance(result, LeaderAndIsr):
            before = term.context.leaders[partition]
            term.context.leaders[partition] = result
            changed.append((partition, before, result))
        elif isinstance(result, BadVersionError):
            outcomes[key] = Errors.INVALID_UPDATE_VERSION
            stale.append(partition)
        else:
            outcomes[key] = Errors.UNKNOWN_SERVER_ERROR
            _log.error("isr_not_written", partition=str(partition), reason=str(result))
    for partition, before, after in changed:
        _log.info(
            "isr_changed",
            partition=str(partition),
            isr_before=list(before.isr),
            isr=list(after.isr),
            leader=after.leader,
            partition_epoch=after.partition_epoch,
        )
        term.on_isr_changed(partition, before.isr, after.isr)
    if changed:
        term.batch.update_metadata_everywhere([partition for partition, _, _ in changed])
        term.batch.flush()
    if stale:
        term.partitions.read_again(stale)


def _topics(
    term: Term,
    request: AlterPartitionRequest,
    asked: list[_Asked],
    outcomes: Mapping[tuple[int, int], Errors],
) -> list[AlteredTopic]:
    rows: list[list[AlteredPartition]] = [[] for _ in request.topics]
    for row in asked:
        error = outcomes[row.topic_position, row.index]
        state = None if row.partition is None else term.context.leaders.get(row.partition)
        rows[row.topic_position].append(answer_of(row.index, error, state))
    return [
        AlteredTopic(topic.topic, topic.topic_id, partitions)
        for topic, partitions in zip(request.topics, rows, strict=True)
    ]
