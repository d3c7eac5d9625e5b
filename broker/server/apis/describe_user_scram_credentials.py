"""DescribeUserScramCredentials (KIP-554): which SCRAM mechanisms each user has, and with how many iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import DescribeUserScramCredentialsRequest
from broker.sasl.credential import ScramCredential
from broker.sasl.scram import ALGORITHMS
from broker.server.apis.context import ApiContext


def handle(request: Request, message: DescribeUserScramCredentialsRequest, ctx: ApiContext) -> Fields:
    """Without names, all users that have a credential are described, in their order."""
    if not message.users:
        users = ctx.store.entity_configs("users")
        return _response([_described(user, users[user]) for user in sorted(users) if _has_any(users[user])])
    asked = Counter(user.name for user in message.users)
    users = ctx.store.entity_configs("users", [user for user, count in asked.items() if user and count == 1])
    return _response([_asked(user, count, users.get(user, {})) for user, count in asked.items()])


def error_response(message: DescribeUserScramCredentialsRequest, error: KafkaError) -> Fields:
    return {**_response([]), "error_code": error.error_code, "error_message": error.message}


def _asked(user: str, count: int, configs: Mapping[str, str]) -> Fields:
    if not user:
        return _refused(user, Errors.RESOURCE_NOT_FOUND, "a user name must not be empty")
    if count > 1:
        return _refused(
            user, Errors.DUPLICATE_RESOURCE, f"user {user} is named more than once in the request"
        )
    if not _has_any(configs):
        return _refused(user, Errors.RESOURCE_NOT_FOUND, f"user {user} has no SCRAM credentials")
    return _described(user, configs)


def _described(user: str, configs: Mapping[str, str]) -> Fields:
    try:
        infos = [
            {"mechanism": algorithm.number, "iterations": ScramCredential.parse(configs[name]).iterations}
            for name, algorithm in ALGORITHMS.items()
            if name in configs
        ]
    except ValueError as error:
        return _refused(user, Errors.UNKNOWN_SERVER_ERROR, f"user {user} {error}")
    return {"user": user, "error_code": Errors.NONE, "error_message": None, "credential_infos": infos}


def _refused(user: str, error: Errors, text: str) -> Fields:
    return {"user": user, "error_code": error, "error_message": text, "credential_infos": []}


def _has_any(configs: Mapping[str, str]) -> bool:
    return not ALGORITHMS.keys().isdisjoint(configs)


def _response(results: list[Fields]) -> dict[str, Any]:
    return {"throttle_time": 0, "error_code": Errors.NONE, "error_message": None, "results": results}
