"""ElectLeaders (KIP-183, KIP-460): responds when this broker's metadata shows the new leaders.

Kafka's DelayedElectLeader. Version 0 only elects preferred leaders.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.controller import Elected
from broker.controller.elections import ElectionResult, ElectionType
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import ElectLeadersRequest
from broker.server.apis.context import ApiContext
from broker.server.apis.metadata_wait import MetadataWait
from broker.utils.topic_partition import TopicPartition


def handle(request: Request, message: ElectLeadersRequest, ctx: ApiContext) -> Fields | None:
    try:
        kind = ElectionType(int(codec.get(message, "election_type", ElectionType.PREFERRED)))
    except ValueError as error:
        raise KafkaError(Errors.INVALID_REQUEST, f"there is no such type of election: {error}") from error

    def on_elected(results: Elected | Errors) -> None:
        if isinstance(results, Errors):
            ctx.respond(request, error_response(message, KafkaError(results)))
        else:
            _answer_when_known(request, message, ctx, results)

    ctx.controller.elect_leaders(kind, _named(message), on_elected)
    return None


def error_response(message: ElectLeadersRequest, error: KafkaError) -> Fields:
    """The same error for every named partition, because version 0 has no other field for it."""
    refused = ElectionResult(error.error_code, error.message)
    return _response(error.error_code, dict.fromkeys(_named(message) or (), refused))


def _named(message: ElectLeadersRequest) -> Sequence[TopicPartition] | None:
    """The requested partitions; None means all."""
    if message.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, index) for topic in message.topic_partitions for index in topic.partitions
    ]


def _answer_when_known(
    request: Request, message: ElectLeadersRequest, ctx: ApiContext, results: Elected
) -> None:
    def unknown() -> list[TopicPartition]:
        return [
            partition
            for partition, result in results.items()
            if result.error is Errors.NONE and _leader(ctx, partition) != result.leader
        ]

    def finish() -> None:
        late = ElectionResult(Errors.REQUEST_TIMED_OUT, "elected, but the brokers do not know of it yet")
        ctx.respond(request, _response(Errors.NONE, {**results, **dict.fromkeys(unknown(), late)}))

    MetadataWait(ctx, request, codec.to_ms(message.timeout), lambda: not unknown(), finish).start()


def _leader(ctx: ApiContext, partition: TopicPartition) -> int | None:
    info = ctx.metadata_cache.partition_info(partition)
    return None if info is None else info.leader


def _response(error: Errors, results: Elected) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for partition, result in results.items():
        row = {
            "partition_id": partition.partition,
            "error_code": result.error,
            "error_message": result.message,
        }
        topics.setdefault(partition.topic, []).append(row)
    return {
        "error_code": error,
        "replica_election_results": [
            {"topic": topic, "partition_result": rows} for topic, rows in topics.items()
        ],
    }
