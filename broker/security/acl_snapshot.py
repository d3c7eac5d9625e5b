"""Decides by the ACLs of one moment. Pure, by the rules of Kafka's AclAuthorizer.

A denial beats every permission. Read, Write, Delete and Alter also permit Describe; AlterConfigs permits
DescribeConfigs. If a resource has no ACL, ``allow.everyone.if.no.acl.found`` decides. Super users may
do everything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from broker.security.acls import (
    IMPLIED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

Entries = frozenset[AccessControlEntry]
MOST_VERDICTS: Final = 20_000
_MOST_RULES: Final = 1_000
_LONGEST_KEPT: Final = 255  # a group's name may have 32 KiB
_Key = tuple[str, str, AclOperation, ResourceType, str | None]


class Defaults(NamedTuple):
    """What holds besides the ACLs: ``super.users`` and ``allow.everyone.if.no.acl.found``."""

    super_users: AbstractSet[str] = frozenset()
    everyone_if_no_acl: bool = False


class AclSnapshot:
    """All ACLs at one moment. It never changes; a change of the ACLs makes another one. Any thread may use it.

    Verdicts are kept, so that the usual question costs one look-up in a dictionary. Clients choose the names
    that they ask for, so at most :data:`MOST_VERDICTS` are kept, and none for long names.
    """

    def __init__(self, acls: Mapping[ResourcePattern, Entries], defaults: Defaults = Defaults()) -> None:  # noqa: B008 - immutable
        self.acls = acls
        self.defaults = defaults
        #: Verdicts that were given, by question.
        self.verdicts: dict[_Key, bool] = {}
        self._known_rules: dict[tuple[str, str, AclOperation], tuple[Entries, Entries]] = {}
        self._literal: dict[tuple[ResourceType, str], Entries] = {}
        self._prefixed: dict[ResourceType, dict[str, Entries]] = {}
        for pattern, entries in acls.items():
            plain = frozenset(entry._replace(host=plain_host(entry.host)) for entry in entries)
            if pattern.pattern_type is PatternType.PREFIXED:
                self._prefixed.setdefault(pattern.resource_type, {})[pattern.name] = plain
            else:
                self._literal[pattern.resource_type, pattern.name] = plain
        # Most prefixes have few different lengths: as many look-ups find those of a name.
        self._lengths = {
            kind: sorted({len(name) for name in names}) for kind, names in self._prefixed.items()
        }

    def with_acls(self, acls: Mapping[ResourcePattern, Entries]) -> AclSnapshot:
        """The snapshot after a change of the ACLs."""
        return AclSnapshot(acls, self.defaults)

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether ``principal`` may do ``operation`` with the resource, from the address ``host``."""
        key = (principal, host, operation, resource_type, name)
        verdict = self.verdicts.get(key)
        if verdict is None:
            verdict = principal in self.defaults.super_users or self._decide(key, name)
            self._keep(key, verdict)
        return verdict

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether ``principal`` may do ``operation`` with at least one resource of the type, which need
        not exist; Kafka's authorizeByResourceType.
        """
        key = (principal, host, operation, resource_type, None)
        verdict = self.verdicts.get(key)
        if verdict is None:
            verdict = principal in self.defaults.super_users or self._decide_any(key)
            self._keep(key, verdict)
        return verdict

    def bindings(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that the filter selects."""
        return [
            AclBinding(pattern, entry)
            for pattern, entries in self.acls.items()
            if wanted.matches_pattern(pattern)
            for entry in entries
            if wanted.matches_entry(entry)
        ]

    def _keep(self, key: _Key, verdict: bool) -> None:
        if len(key[4] or "") > _LONGEST_KEPT:
            return
        if len(self.verdicts) >= MOST_VERDICTS:
            self.verdicts = {}
        self.verdicts[key] = verdict

    def _decide(self, key: _Key, name: str) -> bool:
        principal, host, operation, kind, _ = key
        applying = self._applying(kind, name)
        if not applying:
            return self.defaults.everyone_if_no_acl
        denials, permissions = self._rules(principal, host, operation)
        if not all(map(denials.isdisjoint, applying)):
            return False
        return not all(map(permissions.isdisjoint, applying))

    def _rules(self, principal: str, host: str, operation: AclOperation) -> tuple[Entries, Entries]:
        """The entries that deny this, and those that permit it, wherever they stand."""
        key = (principal, host, operation)
        rules = self._known_rules.get(key)
        if rules is None:
            permitting = (operation, *IMPLIED_BY.get(operation, ()))
            rules = (
                frozenset(_matching(principal, host, (operation,), Permission.DENY)),
                frozenset(_matching(principal, host, permitting, Permission.ALLOW)),
            )
            if len(self._known_rules) >= _MOST_RULES:
                self._known_rules = {}
            self._known_rules[key] = rules
        return rules

    def _applying(self, kind: ResourceType, name: str) -> list[Entries]:
        """The entries of all patterns that the name matches."""
        found = [self._literal.get((kind, WILDCARD)), self._literal.get((kind, name))]
        prefixed = self._prefixed.get(kind)
        if prefixed:
            found += [prefixed.get(name[:size]) for size in self._lengths[kind] if size <= len(name)]
        return [entries for entries in found if entries]

    def _decide_any(self, key: _Key) -> bool:
        principal, host, operation, kind, _ = key
        denials = frozenset(_matching(principal, host, (operation,), Permission.DENY))
        denied, denied_prefixes = self._named(kind, denials)
        if WILDCARD in denied:
            return False
        if self.defaults.everyone_if_no_acl:
            return True
        # Implied operations do not count here, as in Kafka.
        permissions = frozenset(_matching(principal, host, (operation,), Permission.ALLOW))
        allowed, allowed_prefixes = self._named(kind, permissions)
        if WILDCARD in allowed:
            return True

        def is_open(name: str) -> bool:
            return not any(name[:size] in denied_prefixes for size in range(1, len(name) + 1))

        return any(map(is_open, allowed_prefixes)) or any(map(is_open, allowed - denied))

    def _named(
        self, kind: ResourceType, entries: AbstractSet[AccessControlEntry]
    ) -> tuple[set[str], set[str]]:
        """The names, and the prefixes, whose ACLs have one of ``entries``."""
        names = {name for (its, name), own in self._literal.items() if its is kind and own & entries}
        prefixes = {name for name, own in self._prefixed.get(kind, {}).items() if own & entries}
        return names, prefixes


def _matching(
    principal: str, host: str, operations: Iterable[AclOperation], permission: Permission
) -> Iterable[AccessControlEntry]:
    """All entries that are about this principal, host and one of the operations."""
    hosts = (plain_host(host), WILDCARD)
    return (
        AccessControlEntry(who, where, what, permission)
        for who in (principal, WILDCARD_PRINCIPAL)
        for where in hosts
        for what in (*operations, AclOperation.ALL)
    )


def plain_host(host: str) -> str:
    """One spelling for each address, because Java and Python write those of IPv6 differently."""
    if ":" not in host:
        return host
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
