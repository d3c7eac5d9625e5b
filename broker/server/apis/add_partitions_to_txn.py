"""AddPartitionsToTxn: a producer adds partitions to its transaction (versions 0 to 3), or the leader of a partition
asks whether they were added (versions 4 and 5, KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.coordinator.transaction.partitions import Partitions
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, cluster_allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.producer_fenced import answered
from broker.utils.topic_partition import INTERNAL_TOPICS, TopicPartition

_FROM_BROKERS: Final = 4
_FENCED_KNOWN_FROM: Final = 2

TopicErrors = Mapping[str, Mapping[int, Errors]]
Respond = Callable[[TopicErrors], None]


def handle(request: Request, message: AddPartitionsToTxnRequest, ctx: ApiContext) -> Fields | None:
    """Responds when every transaction has its result."""
    if request.api_version >= _FROM_BROKERS:
        return _of_broker(request, message, ctx)
    transactional_id = message.v3_and_below_transactional_id
    asked = _partitions(message.v3_and_below_topics)
    if not allowed(ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _of_client_fields(_all(asked, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    refused = _refused(asked, ctx, request)
    if refused is not None:
        return _of_client_fields(refused)
    producer = ProducerIdAndEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)

    def added(error: Errors) -> None:
        told = answered(error, request.api_version, _FENCED_KNOWN_FROM)
        ctx.respond(request, _of_client_fields(_all(asked, told)))

    ctx.transaction_coordinator.add_partitions(transactional_id, producer, asked, added)
    return None


def error_response(message: AddPartitionsToTxnRequest, error: KafkaError) -> Fields:
    """The error for the whole request, or before version 4 for each partition."""
    topics = getattr(message, "v3_and_below_topics", ())
    fields = _of_client_fields(_all(_partitions(topics), error.error_code))
    return {**fields, "error_code": error.error_code, "results_by_transaction": []}


def _of_broker(request: Request, message: AddPartitionsToTxnRequest, ctx: ApiContext) -> Fields | None:
    if not cluster_allowed(ctx, request, AclOperation.CLUSTER_ACTION):
        return {"error_code": Errors.CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []}
    if not message.transactions:
        return {"error_code": Errors.NONE, "results_by_transaction": []}
    rows: list[Fields] = []
    finished = count(1)

    def collect(transactional_id: str, errors: TopicErrors) -> None:
        # As in Kafka without the topics of which nothing was asked; a client gets them.
        told = _rows({topic: of_topic for topic, of_topic in errors.items() if of_topic})
        rows.append({"transactional_id": transactional_id, "topic_results": told})
        if next(finished) == len(message.transactions):  # one thread only sees this number
            ctx.respond(request, {"error_code": Errors.NONE, "results_by_transaction": rows})

    for transaction in message.transactions:
        _ask(transaction, ctx, collect)
    return None


def _ask(
    transaction: AddPartitionsToTxnTransaction,
    ctx: ApiContext,
    collect: Callable[[str, TopicErrors], None],
) -> None:
    transactional_id = transaction.transactional_id
    asked = _partitions(transaction.topics)
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    refused = _refused(asked, ctx, None)
    coordinator = ctx.transaction_coordinator
    if refused is not None:
        collect(transactional_id, refused)
    elif transaction.verify_only:
        collect(transactional_id, coordinator.verify_partitions(transactional_id, producer, asked))
    else:
        coordinator.add_partitions(
            transactional_id, producer, asked, lambda error: collect(transactional_id, _all(asked, error))
        )


def _refused(asked: Partitions, ctx: ApiContext, client: Request | None) -> TopicErrors | None:
    """The errors if any partition may not be added: then none is. ``client`` is the request of a client, whose
    principal must be allowed to write the topics.
    """
    errors: dict[str, dict[int, Errors]] = {}
    is_refused = False
    for topic, numbers in asked.items():
        may_write = client is None or (
            topic not in INTERNAL_TOPICS
            and allowed(ctx, client, AclOperation.WRITE, ResourceType.TOPIC, topic)
        )
        of_topic = errors[topic] = {}
        for number in numbers:
            if not may_write:
                of_topic[number] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif not ctx.metadata_cache.contains_partition(TopicPartition(topic, number)):
                of_topic[number] = Errors.UNKNOWN_TOPIC_OR_PARTITION
            else:
                of_topic[number] = Errors.OPERATION_NOT_ATTEMPTED
                continue
            is_refused = True
    return errors if is_refused else None


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Partitions:
    asked: dict[str, frozenset[int]] = {}
    for topic in topics:
        asked[topic.name] = asked.get(topic.name, frozenset()) | frozenset(topic.partitions)
    return asked


def _all(asked: Partitions, error: Errors) -> TopicErrors:
    return {topic: dict.fromkeys(numbers, error) for topic, numbers in asked.items()}


def _of_client_fields(errors: TopicErrors) -> Fields:
    return {"results_by_topic_v3_and_below": _rows(errors)}


def _rows(errors: TopicErrors) -> list[Fields]:
    return [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": error}
                for number, error in sorted(of_topic.items())
            ],
        }
        for topic, of_topic in errors.items()
    ]
