"""DescribeAcls, CreateAcls and DeleteAcls (KIP-11, prefixes by KIP-290): the ACLs of the authorizer.

The table demands DESCRIBE, or ALTER, on the cluster first. Without an authorizer the answer is
SECURITY_DISABLED, as in Kafka. Version 0 knows literal patterns only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from broker.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from broker.security.authorizer import Authorizer, Deleted
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

E = TypeVar("E", bound=IntEnum)
_UNKNOWN_CODE: Final = "a type, operation or permission has a code that this broker does not know"


def describe(request: Request, message: DescribeAclsRequest, ctx: ApiContext) -> Fields:
    """The ACLs that the filter selects, by resource."""
    wanted = _filter(message)
    if wanted.is_unknown:
        raise KafkaError(Errors.INVALID_REQUEST, _UNKNOWN_CODE)
    bindings = _authorizer(ctx).acls(wanted)
    budget = AnswerBudget(request, ctx.config.int(SETTING))
    refusal = budget.refusal(sum(map(_size, bindings)), f"{len(bindings)} ACLs")
    if refusal is not Errors.NONE:
        raise KafkaError(refusal, f"more ACLs than one answer may have ({SETTING}): ask for fewer at once")
    resources: dict[ResourcePattern, list[Fields]] = {}
    for binding in bindings:
        resources.setdefault(binding.pattern, []).append(_entry(binding))
    return {
        "error_code": Errors.NONE,
        "error_message": None,
        "resources": [{**_pattern(pattern), "acls": rows} for pattern, rows in resources.items()],
    }


def create(request: Request, message: CreateAclsRequest, ctx: ApiContext) -> Fields:
    """Each ACL has its own result."""
    authorizer = _authorizer(ctx)
    bindings = [
        AclBinding(
            ResourcePattern(
                _member(ResourceType, row.resource_type),
                row.resource_name,
                _member(PatternType, codec.get(row, "resource_pattern_type", PatternType.LITERAL)),
            ),
            AccessControlEntry(
                row.principal,
                row.host,
                _member(AclOperation, row.operation),
                _member(Permission, row.permission_type),
            ),
        )
        for row in message.creations
    ]
    results = authorizer.create_acls(request.connection, bindings)
    return {"results": [_error(error) for error in results]}


def delete(request: Request, message: DeleteAclsRequest, ctx: ApiContext) -> Fields:
    """Each filter has the ACLs that it deleted. A filter that this broker does not understand deletes nothing."""
    authorizer = _authorizer(ctx)
    filters = [_filter(row) for row in message.filters]
    unknown = KafkaError(Errors.INVALID_REQUEST, _UNKNOWN_CODE)
    known = [wanted for wanted in filters if not wanted.is_unknown]
    deleted = iter(authorizer.delete_acls(request.connection, known))
    results = [
        _result(unknown, ()) if wanted.is_unknown else _result(None, next(deleted)) for wanted in filters
    ]
    return {"filter_results": results}


def error_response(message: Any, error: KafkaError) -> Fields:
    """The error for the whole request, or for each of its elements."""
    told = _error(error)
    if (creations := codec.get(message, "creations")) is not None:
        return {"results": [told for _ in creations]}
    if (filters := codec.get(message, "filters")) is not None:
        return {"filter_results": [_result(error, ()) for _ in filters]}
    return {**told, "resources": []}


def _authorizer(ctx: ApiContext) -> Authorizer:
    if ctx.access is None:
        raise KafkaError(Errors.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return ctx.access.authorizer


def _member(kind: type[E], code: int) -> E:
    """UNKNOWN, which is 0, for a code of a later Kafka."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _filter(row: Any) -> AclFilter:
    return AclFilter(
        _member(ResourceType, row.resource_type_filter),
        row.resource_name_filter,
        _member(PatternType, codec.get(row, "pattern_type_filter", PatternType.LITERAL)),
        row.principal_filter,
        row.host_filter,
        _member(AclOperation, row.operation),
        _member(Permission, row.permission_type),
    )


def _size(binding: AclBinding) -> int:
    pattern, entry = binding
    return ROW_BYTES + sum(map(text_bytes, (pattern.name, entry.principal, entry.host)))


def _pattern(pattern: ResourcePattern) -> Fields:
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def _entry(binding: AclBinding) -> Fields:
    entry = binding.entry
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _error(error: KafkaError | None) -> Fields:
    if error is None:
        return {"error_code": Errors.NONE, "error_message": None}
    return {"error_code": error.error_code, "error_message": error.message or None}


def _result(error: KafkaError | None, deleted: Sequence[Deleted]) -> Fields:
    rows = [
        {**_error(each.error), **_pattern(each.binding.pattern), **_entry(each.binding)} for each in deleted
    ]
    return {**_error(error), "matching_acls": rows}
