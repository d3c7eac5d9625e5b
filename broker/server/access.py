"""Asks the authorizer for the API handlers: who may do what, with the audit log of denials.

Without an authorizer everybody may do everything, and each question costs one test of an attribute.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import structlog

from broker.network.request_channel import Request
from broker.protocol.errors import Errors
from broker.security.acls import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType, bits
from broker.security.authorizer import Authorizer
from broker.server.audit import AuditLog
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)

NOT_ASKED: Final = -(1 << 31)
"""``authorizedOperations`` of a response to a request that did not ask for them."""

DENIED: Final = {
    ResourceType.TOPIC: Errors.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Errors.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Errors.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_ALL_OPERATIONS: Final = {kind: bits(operations) for kind, operations in SUPPORTED.items()}


class Access:
    """An authorizer and its audit log. An authorizer that fails has denied."""

    def __init__(self, authorizer: Authorizer, audit: AuditLog) -> None:
        self.authorizer = authorizer
        self._audit = audit

    def allows(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        told: bool = True,
    ) -> bool:
        """Whether the request's principal may do this. A denial is logged if ``told``: not for what a client
        did not ask for by name.
        """
        try:
            allowed = bool(self.authorizer.authorize(request.connection, operation, resource_type, name))
        except Exception as error:
            allowed = self._failed(request, error)
        if not allowed and told:
            self._audit.denied(request, operation, resource_type, name)
        return allowed

    def allows_any(self, request: Request, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the principal may do this with any resource of the type."""
        try:
            allowed = bool(self.authorizer.authorize_any(request.connection, operation, resource_type))
        except Exception as error:
            allowed = self._failed(request, error)
        if not allowed:
            self._audit.denied(request, operation, resource_type, "")
        return allowed

    def _failed(self, request: Request, error: Exception) -> bool:
        log_refusal(
            "authorizer_failed",
            request.connection.client_address,
            repr(error),
            authorizer=type(self.authorizer).__name__,
            action="denied",
        )
        return False


class HasAccess(Protocol):
    """The part of :class:`~broker.server.apis.context.ApiContext` that is asked here."""

    @property
    def access(self) -> Access | None: ...


def allowed(
    ctx: HasAccess, request: Request, operation: AclOperation, resource_type: ResourceType, name: str
) -> bool:
    """Whether the request's principal may do this."""
    return ctx.access is None or ctx.access.allows(request, operation, resource_type, name)


def cluster_allowed(ctx: HasAccess, request: Request, operation: AclOperation, *, told: bool = True) -> bool:
    """Whether the request's principal may do this with the cluster."""
    return ctx.access is None or ctx.access.allows(
        request, operation, ResourceType.CLUSTER, CLUSTER_NAME, told=told
    )


def allowed_names(
    ctx: HasAccess,
    request: Request,
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
) -> set[str]:
    """The names with which the principal may do this. The others are what a client did not ask for."""
    access = ctx.access
    if access is None:
        return set(names)
    return {name for name in names if access.allows(request, operation, resource_type, name, told=False)}


def authorized_operations(ctx: HasAccess, request: Request, resource_type: ResourceType, name: str) -> int:
    """All operations that the principal may do with the resource, as a bit field (KIP-430)."""
    access = ctx.access
    if access is None:
        return _ALL_OPERATIONS[resource_type]
    return bits(
        operation
        for operation in SUPPORTED[resource_type]
        if access.allows(request, operation, resource_type, name, told=False)
    )


def authorized_cluster_operations(ctx: HasAccess, request: Request) -> int:
    """Those with the cluster; 0 for a principal that may not describe it."""
    if not cluster_allowed(ctx, request, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(ctx, request, ResourceType.CLUSTER, CLUSTER_NAME)
