"""WriteTxnMarkers, as long as no log of this broker has transactions: no partition needs a marker."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import WritableTxnMarker, WriteTxnMarkersRequest
from broker.security.acls import AclOperation
from broker.server.access import cluster_allowed
from broker.server.apis.context import ApiContext


def handle(request: Request, message: WriteTxnMarkersRequest, ctx: ApiContext) -> Fields:
    """UNSUPPORTED_VERSION for each partition: it has no records of the transaction. Needs ALTER or CLUSTER_ACTION
    on the cluster.
    """
    may_alter = cluster_allowed(ctx, request, AclOperation.ALTER, told=False)
    if not may_alter and not cluster_allowed(ctx, request, AclOperation.CLUSTER_ACTION):
        raise KafkaError(Errors.CLUSTER_AUTHORIZATION_FAILED)
    return {"markers": [_marker(marker, Errors.UNSUPPORTED_VERSION) for marker in message.markers]}


def error_response(message: WriteTxnMarkersRequest, error: KafkaError) -> Fields:
    return {"markers": [_marker(marker, error.error_code) for marker in message.markers]}


def _marker(marker: WritableTxnMarker, error: Errors) -> Fields:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": error} for index in topic.partition_indexes
            ],
        }
        for topic in marker.topics
    ]
    return {"producer_id": marker.producer_id, "topics": topics}
