"""What one ACL does beside another: each pair that meets, which a property test has by chance alone."""

from __future__ import annotations

from itertools import product

import pytest

from broker.security.acl_snapshot import AclSnapshot, Defaults
from broker.security.acls import (
    AccessControlEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ALICE, HOST, NAME = "User:alice", "10.0.0.1", "orders"
# Each of these is about the question of whether alice may read from the topic orders.
PATTERNS = [
    ResourcePattern(ResourceType.TOPIC, NAME, PatternType.LITERAL),
    ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL),
    ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED),
]
WHO = list(product((ALICE, "User:*"), (HOST, "*"), (AclOperation.READ, AclOperation.ALL)))


def may_read(*acls: tuple[ResourcePattern, AccessControlEntry], everyone: bool = False) -> bool:
    found: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
    for pattern, entry in acls:
        found[pattern] = found.get(pattern, frozenset()) | {entry}
    snapshot = AclSnapshot(found, Defaults(everyone_if_no_acl=everyone))
    return snapshot.allows(ALICE, HOST, AclOperation.READ, ResourceType.TOPIC, NAME)


@pytest.mark.parametrize("denied", PATTERNS, ids=["literal", "wildcard", "prefixed"])
@pytest.mark.parametrize("allowed", PATTERNS, ids=["literal", "wildcard", "prefixed"])
def test_a_denial_beats_every_permission(allowed: ResourcePattern, denied: ResourcePattern) -> None:
    for permission, denial in product(WHO, WHO):
        permits = allowed, AccessControlEntry(*permission, Permission.ALLOW)
        denies = denied, AccessControlEntry(*denial, Permission.DENY)
        assert may_read(permits)
        assert not may_read(permits, denies)


@pytest.mark.parametrize(
    "other",
    [
        AccessControlEntry("User:bob", HOST, AclOperation.READ, Permission.DENY),
        AccessControlEntry(ALICE, "10.0.0.2", AclOperation.READ, Permission.DENY),
        AccessControlEntry(ALICE, HOST, AclOperation.DESCRIBE, Permission.DENY),
    ],
    ids=["of somebody else", "from another host", "of another operation"],
)
def test_a_denial_is_about_what_it_says_alone(other: AccessControlEntry) -> None:
    permits = PATTERNS[0], AccessControlEntry(ALICE, HOST, AclOperation.READ, Permission.ALLOW)
    assert may_read(permits, (PATTERNS[0], other))


def test_a_resource_with_any_acl_is_closed_to_everybody_else() -> None:
    others = AccessControlEntry("User:bob", "*", AclOperation.WRITE, Permission.ALLOW)
    assert may_read(everyone=True)
    assert not any(may_read((pattern, others), everyone=True) for pattern in PATTERNS)
