"""The requests about delegation tokens (KIP-48). Any broker serves them.

As in Kafka, they are for clients that have authenticated, by something else than a token. A principal may always
create, renew, expire and describe its own tokens. Those of others need the authorizer's permission (KIP-373).
Without an authorizer nobody has it, unlike in Kafka: a token of another user is that user's login.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
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
from broker.security.acls import AclOperation, ResourceType
from broker.server.apis.context import ApiContext
from broker.server.apis.store_failures import failed
from broker.server.delegation_tokens import DelegationTokens
from broker.zookeeper.store import StoreError
from broker.zookeeper.token_store import TokenInfo

_USER: Final = "User:"
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
        if owner != principal and not _may_create(request, ctx, owner):
            raise KafkaError(Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(not each.startswith(_USER) for each in (owner, *renewers)):
            raise KafkaError(Errors.INVALID_PRINCIPAL_TYPE)
        token = tokens.create(owner, renewers, codec.to_ms(message.max_lifetime), principal)
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
            "error_code": _code(request, error),
            **principals,
            **times,
            "token_id": "",
            "hmac": b"",
            "throttle_time": 0,
        }


def renew(request: Request, message: RenewDelegationTokenRequest, ctx: ApiContext) -> Fields:
    return _change(request, ctx, DelegationTokens.renew, message.hmac, message.renew_period)


def expire(request: Request, message: ExpireDelegationTokenRequest, ctx: ApiContext) -> Fields:
    return _change(request, ctx, DelegationTokens.expire, message.hmac, message.expiry_time_period)


def describe(request: Request, message: DescribeDelegationTokenRequest, ctx: ApiContext) -> Fields:
    """The tokens that the principal may see: with ``owners``, those that concern one of them; an empty list is
    none of them, None is all.
    """
    try:
        tokens = _tokens(request.connection, ctx)
    except KafkaError as error:
        return {"error_code": error.error_code, "tokens": [], "throttle_time": 0}
    found: Iterable[TokenInfo] = tokens.all()
    if message.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in message.owners}
        found = [token for token in found if not owners.isdisjoint(token.concerned)]
    return {
        "error_code": Errors.NONE,
        "tokens": [
            _described(token, tokens.secret_of(token)) for token in found if _may_see(request, ctx, token)
        ],
        "throttle_time": 0,
    }


def _may_create(request: Request, ctx: ApiContext, owner: str) -> bool:
    """Whether the principal may create tokens of this other owner."""
    return ctx.access is not None and ctx.access.allows(
        request, AclOperation.CREATE_TOKENS, ResourceType.USER, owner
    )


def _may_see(request: Request, ctx: ApiContext, token: TokenInfo) -> bool:
    if request.connection.principal in token.concerned:
        return True
    access = ctx.access
    return access is not None and (
        access.allows(
            request, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, told=False
        )
        or access.allows(request, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, told=False)
    )


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


def _change(
    request: Request,
    ctx: ApiContext,
    change: Callable[[DelegationTokens, str, bytes, int], int],
    secret: bytes,
    period: dt.timedelta,
) -> Fields:
    """The answer to a change of a token's expiry time."""
    try:
        tokens, period_ms = _tokens(request.connection, ctx), codec.to_ms(period)
        expires_ms = change(tokens, request.connection.principal, bytes(secret), period_ms)
    except (KafkaError, StoreError) as error:
        return {"error_code": _code(request, error), "expiry_timestamp": _NO_TIME, "throttle_time": 0}
    return {"error_code": Errors.NONE, "expiry_timestamp": expires_ms, "throttle_time": 0}


def _code(request: Request, error: KafkaError | StoreError) -> Errors:
    return (error if isinstance(error, KafkaError) else failed(request, "a token", error)).error_code
