"""The requests about delegation tokens (KIP-48). Any broker serves them.

As in Kafka, they are for clients that have authenticated, by something else than a token. A principal gets
tokens of its own only: CreateTokens and DescribeTokens for others need an authorizer, which is not asked yet.
"""

from __future__ import annotations

from typing import Any, Final

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from broker.server.apis.context import ApiContext
from broker.server.delegation_tokens import DelegationTokens
from broker.zookeeper.store import StoreError
from broker.zookeeper.token_store import TokenInfo

_USER: Final = "User"
_ANONYMOUS: Final = "User:ANONYMOUS"
# With an error. Kafka has -1 here, which kio cannot read; no client looks at it.
_NO_TIME: Final = 0


def create(request: Request, message: CreateDelegationTokenRequest, ctx: ApiContext) -> Fields:
    principal = request.connection.principal
    owner_name = codec.get(message, "owner_principal_name")
    owner = f"{codec.get(message, 'owner_principal_type')}:{owner_name}" if owner_name else principal
    renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in message.renewers)
    try:
        tokens = _tokens(request.connection, ctx)
        if owner != principal:
            raise KafkaError(Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(each.principal_type != _USER for each in message.renewers):
            raise KafkaError(Errors.INVALID_PRINCIPAL_TYPE)
        token = tokens.create(principal, renewers, codec.to_ms(message.max_lifetime))
        return {
            "error_code": Errors.NONE,
            **_principals(owner, principal),
            "issue_timestamp": token.issued_ms,
            "expiry_timestamp": token.expires_ms,
            "max_timestamp": token.max_ms,
            "token_id": token.token_id,
            "hmac": tokens.secret_of(token),
            "throttle_time": 0,
        }
    except (KafkaError, StoreError) as error:
        times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), _NO_TIME)
        principals = _principals(owner, principal)
        return {
            "error_code": _code(error),
            **principals,
            **times,
            "token_id": "",
            "hmac": b"",
            "throttle_time": 0,
        }


def renew(request: Request, message: RenewDelegationTokenRequest, ctx: ApiContext) -> Fields:
    try:
        tokens, period_ms = _tokens(request.connection, ctx), codec.to_ms(message.renew_period)
        return _changed(tokens.renew(request.connection.principal, bytes(message.hmac), period_ms))
    except (KafkaError, StoreError) as error:
        return _unchanged(error)


def expire(request: Request, message: ExpireDelegationTokenRequest, ctx: ApiContext) -> Fields:
    try:
        tokens, period_ms = _tokens(request.connection, ctx), codec.to_ms(message.expiry_time_period)
        return _changed(tokens.expire(request.connection.principal, bytes(message.hmac), period_ms))
    except (KafkaError, StoreError) as error:
        return _unchanged(error)


def describe(request: Request, message: DescribeDelegationTokenRequest, ctx: ApiContext) -> Fields:
    """No owners: all tokens that the principal may see. An empty list of owners: none."""
    try:
        tokens = _tokens(request.connection, ctx)
    except KafkaError as error:
        return {"error_code": error.error_code, "tokens": [], "throttle_time": 0}
    found = tokens.tokens_of(request.connection.principal)
    if message.owners is not None:
        owners = [f"{each.principal_type}:{each.principal_name}" for each in message.owners]
        found = [token for token in found if any(token.is_of(owner) for owner in owners)]
    return {
        "error_code": Errors.NONE,
        "tokens": [_described(token, tokens.secret_of(token)) for token in found],
        "throttle_time": 0,
    }


def _tokens(connection: ConnectionInfo, ctx: ApiContext) -> DelegationTokens:
    """Raises KafkaError if the client may not ask, or if there are no tokens."""
    protocol = connection.security_protocol
    is_anonymous = protocol == "PLAINTEXT" or (protocol == "SSL" and connection.principal == _ANONYMOUS)
    if is_anonymous or connection.token_authenticated:
        raise KafkaError(Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if ctx.tokens is None:
        raise KafkaError(Errors.DELEGATION_TOKEN_AUTH_DISABLED)
    return ctx.tokens


def _described(token: TokenInfo, secret: bytes) -> Fields:
    return {
        **_principals(token.owner, token.requester),
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": secret,
        "renewers": [_principal(renewer) for renewer in token.renewers],
    }


def _principals(owner: str, requester: str) -> dict[str, Any]:
    return {**_principal(owner), **_principal(requester, "token_requester_")}


def _principal(principal: str, prefix: str = "") -> dict[str, Any]:
    kind, _, name = principal.partition(":")
    return {f"{prefix}principal_type": kind, f"{prefix}principal_name": name}


def _changed(expires_ms: int) -> Fields:
    return {"error_code": Errors.NONE, "expiry_timestamp": expires_ms, "throttle_time": 0}


def _unchanged(error: KafkaError | StoreError) -> Fields:
    return {"error_code": _code(error), "expiry_timestamp": _NO_TIME, "throttle_time": 0}


def _code(error: KafkaError | StoreError) -> Errors:
    return error.error_code if isinstance(error, KafkaError) else Errors.UNKNOWN_SERVER_ERROR
