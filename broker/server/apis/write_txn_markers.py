"""WriteTxnMarkers: a coordinator ends transactions on this broker's partitions, or an administrator ends a
hanging one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import WritableTxnMarker, WriteTxnMarkersRequest
from broker.replication.transaction_markers import MarkerErrors, OwnMarker
from broker.security.acls import AclOperation
from broker.server.access import cluster_allowed
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition


def handle(request: Request, message: WriteTxnMarkersRequest, ctx: ApiContext) -> Fields | None:
    """Responds when all in-sync replicas have the markers. Needs ALTER or CLUSTER_ACTION on the cluster; as a
    broker's request it is never throttled.
    """
    if not (
        cluster_allowed(ctx, request, AclOperation.ALTER, told=False)
        or cluster_allowed(ctx, request, AclOperation.CLUSTER_ACTION)
    ):
        raise KafkaError(Errors.CLUSTER_AUTHORIZATION_FAILED)
    ctx.quotas.exempt(request)
    markers = [
        OwnMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            _partitions(marker),
        )
        for marker in message.markers
    ]

    def answer(results: Sequence[MarkerErrors]) -> None:
        ctx.respond(request, _fields(zip((m.producer_id for m in markers), results, strict=True)))

    ctx.markers.append(markers, answer)
    return None


def error_response(message: WriteTxnMarkersRequest, error: KafkaError) -> Fields:
    return _fields(
        (marker.producer_id, dict.fromkeys(_partitions(marker), error.error_code))
        for marker in message.markers
    )


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    """The marker's partitions, each once."""
    named = (
        TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
    )
    return list(dict.fromkeys(named))


def _fields(results: Iterable[tuple[int, MarkerErrors]]) -> Fields:
    """The response, which has each producer once: of two markers, the later one's error stands. As in Kafka it has
    none for whom nothing was asked.
    """
    producers: dict[int, dict[TopicPartition, Errors]] = {}
    for producer_id, errors in results:
        if errors:
            producers.setdefault(producer_id, {}).update(errors)
    return {"markers": [{"producer_id": pid, "topics": _topics(errors)} for pid, errors in producers.items()]}


def _topics(errors: Mapping[TopicPartition, Errors]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": error})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
