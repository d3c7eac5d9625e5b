"""WriteTxnMarkers, as long as no log of this broker has transactions: no partition needs a marker."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.requests import WriteTxnMarkersRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: WriteTxnMarkersRequest, ctx: ApiContext) -> Fields:
    """UNSUPPORTED_VERSION for each partition: it has no records of the transaction."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": index, "error_code": Errors.UNSUPPORTED_VERSION}
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in message.markers
        ]
    }
