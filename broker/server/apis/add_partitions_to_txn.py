"""AddPartitionsToTxn: refused, because there is no transaction coordinator yet."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.requests import AddPartitionsToTxnRequest
from broker.server.apis.context import ApiContext


def handle(_request: Request, message: AddPartitionsToTxnRequest, _ctx: ApiContext) -> Fields:
    topics = codec.get(message, "v3_and_below_topics") or ()
    refused = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": Errors.COORDINATOR_NOT_AVAILABLE}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
    return {
        "throttle_time": 0,
        "error_code": Errors.COORDINATOR_NOT_AVAILABLE,
        "results_by_transaction": [],
        "results_by_topic_v3_and_below": refused,
    }
