"""The znodes of ACLs: their paths and their content, exactly as in Kafka 3.9 (``ZkData``). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from broker.security.acls import (
    RESOURCE_TYPES,
    AccessControlEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)
from broker.zookeeper.znodes import STRANGE, BadZnodeError, dump, field_of, load

ACLS: Final[Mapping[PatternType, str]] = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
"""The parents of the znodes: ``TYPE/NAME`` follows."""

CHANGES: Final[Mapping[PatternType, str]] = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
"""The parents of the announcements."""

CHANGE_PREFIX: Final = "acl_changes_"
PATHS: Final = (
    *(f"{root}/{kind.text}" for root in ACLS.values() for kind in RESOURCE_TYPES),
    *CHANGES.values(),
)
"""The znodes that AclAuthorizer creates when it starts."""

_VERSION: Final = 1
E = TypeVar("E", bound=IntEnum)
_TYPES: Final = {kind.text: kind for kind in RESOURCE_TYPES}


def acl_path(pattern: ResourcePattern) -> str:
    return f"{ACLS[pattern.pattern_type]}/{pattern.resource_type.text}/{pattern.name}"


def resource_type(name: str) -> ResourceType | None:
    """The type of a path; None for one that Kafka 3.9 does not have."""
    return _TYPES.get(name)


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    rows = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.text,
            "host": entry.host,
            "operation": entry.operation.text,
        }
        for entry in sorted(entries)
    ]
    return dump({"acls": rows, "version": _VERSION})


def decode_acls(path: str, data: bytes) -> frozenset[AccessControlEntry]:
    """The entries. Raises BadZnodeError: an ACL that is not understood may be a denial."""
    if not data:
        return frozenset()
    value = load(path, data)
    try:
        if int(field_of(path, value, "version")) != _VERSION:
            raise ValueError(f"version {value['version']} is not known, only {_VERSION}")
        return frozenset(_decode_entry(row) for row in field_of(path, value, "acls"))
    except STRANGE as error:
        raise BadZnodeError(f"{path} holds no ACLs ({error}): {data[:500]!r}") from error


def _decode_entry(row: Mapping[str, Any]) -> AccessControlEntry:
    principal, host = str(row["principal"]), str(row["host"])
    if problem := principal_problem(principal):
        raise ValueError(problem)
    return AccessControlEntry(
        principal, host, _member(AclOperation, row["operation"]), _member(Permission, row["permissionType"])
    )


def _member(kind: type[E], text: str) -> E:
    """The member that Kafka writes as ``text``; old versions and people also write it in capitals."""
    wanted = str(text).replace("_", "").upper()
    for member in kind:
        if member > 1 and member.name.replace("_", "") == wanted:
            return member
    raise ValueError(f"{text!r} is no {kind.__name__}")


def encode_change(pattern: ResourcePattern) -> bytes:
    """The announcement that the pattern's ACLs have changed: plain text for literal patterns."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return dump(
        {
            "version": _VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(pattern_type: PatternType, path: str, data: bytes) -> ResourcePattern:
    """The pattern of an announcement. Raises BadZnodeError."""
    try:
        if pattern_type is PatternType.LITERAL:
            kind, colon, name = data.decode().partition(":")
            if not colon:
                raise ValueError("TYPE:name is expected")
            return ResourcePattern(_member(ResourceType, kind), name)
        value = load(path, data)
        if int(field_of(path, value, "version")) > _VERSION:
            raise ValueError(f"version {value['version']} is not known, only {_VERSION}")
        return ResourcePattern(
            _member(ResourceType, field_of(path, value, "resourceType")),
            str(field_of(path, value, "name")),
            _member(PatternType, field_of(path, value, "patternType")),
        )
    except STRANGE as error:
        raise BadZnodeError(f"{path} announces no ACL ({error}): {data[:500]!r}") from error
