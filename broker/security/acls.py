"""Kafka's model of ACLs: resources, operations, entries and filters, with Kafka's codes and names. Pure.

``acl_snapshot`` decides by them, ``acl_znodes`` has their form in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
CLUSTER_NAME: Final = "kafka-cluster"


class _Named(IntEnum):
    """An enum whose members have a name of their own in Kafka's JSON and paths: ``DescribeConfigs``."""

    @property
    def text(self) -> str:
        """Kafka's name in JSON and in paths."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ResourceType(_Named):
    """What an ACL is about; Kafka's ResourceType."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How a pattern's name is compared; Kafka's PatternType. Only filters use ANY and MATCH."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Named):
    """What a principal does; Kafka's AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(_Named):
    """Whether an entry allows or denies; Kafka's AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
"""The types that an ACL can have."""

IMPLIED_BY: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""The operations whose permission also permits the key. A denial denies only its own operation."""

SUPPORTED: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that each type of resource knows, for ``authorizedOperations``."""


class ResourcePattern(NamedTuple):
    """The resources of an ACL; Kafka's ResourcePattern. The literal name ``*`` means all of the type."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AccessControlEntry(NamedTuple):
    """Who may do what, or may not; Kafka's AccessControlEntry. ``User:*`` and the host ``*`` mean
    everybody and everywhere.
    """

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class AclBinding(NamedTuple):
    """An ACL: an entry and the resources that it is about; Kafka's AclBinding."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclFilter(NamedTuple):
    """Selects ACLs; Kafka's AclBindingFilter. None and ANY match everything. The pattern type MATCH selects
    all patterns that apply to ``name``.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it has a code that this version of Kafka does not know."""
        return not all((self.resource_type, self.pattern_type, self.operation, self.permission))

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            return applies_to(pattern, self.name)
        return self.name == pattern.name

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def exact_patterns(self) -> Iterator[ResourcePattern]:
        """All patterns that can match, if the filter itself says which: at most one of each pattern type."""
        if self.resource_type <= ResourceType.ANY or self.name is None:
            return
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            if self.pattern_type in (PatternType.ANY, pattern_type):
                yield ResourcePattern(self.resource_type, self.name, pattern_type)


def applies_to(pattern: ResourcePattern, name: str) -> bool:
    """Whether ACLs with this pattern are about the resource ``name`` of its type."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def bits(operations: Iterable[AclOperation]) -> int:
    """``authorizedOperations`` of a response: one bit for each operation, by its code."""
    return sum(1 << operation for operation in operations)


def principal_problem(principal: str) -> str | None:
    """What is wrong with a principal's text; None for ``Type:name``."""
    if ":" in principal:
        return None
    return f"{principal!r} is no principal: Type:name is expected, such as User:alice"
