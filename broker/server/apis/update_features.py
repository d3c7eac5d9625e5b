"""UpdateFeatures (KIP-584): a cluster with ZooKeeper has no features, so each update has an error."""

from __future__ import annotations

from enum import IntEnum

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import FeatureUpdateKey, UpdateFeaturesRequest
from broker.server.apis.context import ApiContext


class _Upgrade(IntEnum):
    """The ``upgrade_type`` on the wire, from version 1 on."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def handle(_request: Request, message: UpdateFeaturesRequest, ctx: ApiContext) -> Fields:
    """Each feature's own error, by Kafka's order of checks."""
    if not ctx.controller.is_active:
        refusal = KafkaError(Errors.NOT_CONTROLLER, f"broker {ctx.broker_id} is not the controller")
        return error_response(message, refusal)
    named = {update.feature: update for update in message.feature_updates}
    results = [
        {"feature": name, "error_code": Errors.INVALID_REQUEST, "error_message": _reason(update)}
        for name, update in named.items()
    ]
    return {"error_code": Errors.NONE, "error_message": None, "results": results}


def error_response(_message: UpdateFeaturesRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code, "error_message": error.message, "results": []}


def _reason(update: FeatureUpdateKey) -> str:
    may_go_down = codec.get(update, "allow_downgrade", False)
    upgrade = codec.get(update, "upgrade_type", _Upgrade.SAFE_DOWNGRADE if may_go_down else _Upgrade.UPGRADE)
    level = update.max_version_level
    if not update.feature:
        return "a feature needs a name"
    if upgrade not in list(_Upgrade):
        return f"there is no upgrade type {upgrade}"
    if level >= 1:
        return f"{update.feature} is not supported: a cluster with ZooKeeper has no features"
    if upgrade == _Upgrade.UPGRADE:
        return f"version level {level} removes a feature, which needs a downgrade type"
    return f"{update.feature} is not there to be removed"
