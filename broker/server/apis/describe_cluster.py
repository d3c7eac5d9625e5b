"""DescribeCluster (KIP-700)."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.epochs import NO_CONTROLLER
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.requests import DescribeClusterRequest
from broker.server.access import NOT_ASKED, authorized_cluster_operations
from broker.server.apis.context import ApiContext

_BROKERS, _CONTROLLERS = 1, 2


def handle(request: Request, message: DescribeClusterRequest, ctx: ApiContext) -> Fields:
    """The live brokers on the request's listener, the controller, and the cluster id. A controller that is not
    among these brokers is not named.
    """
    endpoint_type = codec.get(message, "endpoint_type", _BROKERS)
    if endpoint_type == _CONTROLLERS:
        return _refused(Errors.MISMATCHED_ENDPOINT_TYPE, "this is a broker, the request is for controllers")
    if endpoint_type != _BROKERS:
        return _refused(Errors.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {endpoint_type}")
    brokers = []
    for broker in ctx.metadata_cache.snapshot.brokers.values():
        endpoint = broker.endpoints.get(request.connection.listener_name)
        if endpoint is not None:
            host, port = endpoint
            brokers.append({"broker_id": broker.broker_id, "host": host, "port": port, "rack": broker.rack})
    controller = ctx.metadata_cache.controller_id
    operations = NOT_ASKED
    if message.include_cluster_authorized_operations:
        operations = authorized_cluster_operations(ctx, request)
    return {
        "error_code": Errors.NONE,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": ctx.cluster_id,
        "controller_id": controller if controller in {row["broker_id"] for row in brokers} else NO_CONTROLLER,
        "brokers": brokers,
        "cluster_authorized_operations": operations,
    }


def _refused(error: Errors, message: str) -> Fields:
    return {
        "error_code": error,
        "error_message": message,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "controller_id": NO_CONTROLLER,
        "brokers": [],
        "cluster_authorized_operations": NOT_ASKED,
    }
