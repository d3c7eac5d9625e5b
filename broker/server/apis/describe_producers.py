"""DescribeProducers: the producers that a partition's replica knows, with their open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.config.topic_name import topic_name_problem
from broker.log.producers.producer_state import ProducerEntry
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.protocol.requests import DescribeProducersRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget
from broker.server.apis.context import ApiContext, why_absent
from broker.utils.topic_partition import TopicPartition


def handle(request: Request, message: DescribeProducersRequest, ctx: ApiContext) -> Fields:
    """Leaders and followers answer. A partition that is named twice is described once."""
    budget = AnswerBudget(request, ctx.config.int(SETTING))
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in asked.items():
        refusal = _topic_refusal(request, name, ctx)
        rows = [
            _error(index, refusal)
            if refusal is not None
            else _describe(TopicPartition(name, index), budget, ctx)
            for index in indexes
        ]
        topics.append({"name": name, "partitions": rows})
    return {"throttle_time": 0, "topics": topics}


def _topic_refusal(request: Request, name: str, ctx: ApiContext) -> KafkaError | None:
    problem = topic_name_problem(name)
    if problem is not None:
        return KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name[:300]!r} is not valid: {problem}")
    if not allowed(ctx, request, AclOperation.READ, ResourceType.TOPIC, name):
        return KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED)
    if not ctx.metadata_cache.contains(name):
        return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def _describe(topic_partition: TopicPartition, budget: AnswerBudget, ctx: ApiContext) -> Fields:
    index = topic_partition.partition
    log = ctx.replica_manager.local_log(topic_partition)
    if log is None:
        return _error(index, KafkaError(why_absent(topic_partition, ctx)))
    producers = log.producers.copies()
    refusal = budget.refusal(ROW_BYTES * len(producers), f"the producers of {topic_partition}")
    if refusal is not Errors.NONE:
        return _error(index, KafkaError(refusal))
    return {
        "partition_index": index,
        "error_code": Errors.NONE,
        "error_message": None,
        "active_producers": _rows(producers),
    }


def _rows(producers: Sequence[ProducerEntry]) -> list[Fields]:
    return [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": UNKNOWN_OFFSET
            if entry.current_txn_first_offset is None
            else entry.current_txn_first_offset,
        }
        for entry in producers
    ]


def _error(index: int, error: KafkaError) -> Fields:
    return {
        "partition_index": index,
        "error_code": error.error_code,
        "error_message": error.message or None,
        "active_producers": [],
    }
