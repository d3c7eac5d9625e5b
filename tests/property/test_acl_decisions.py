"""The snapshot decides as a plain, slow reading of Kafka's rules does, whatever the ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.security.acl_snapshot import AclSnapshot, Defaults
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

PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:")
HOSTS = ("10.0.0.1", "10.0.0.2", "*", "fe80::1")
# Few letters: prefixes and names meet.
NAMES = st.text("ab*", min_size=1, max_size=4)
OPERATIONS = tuple(operation for operation in AclOperation if operation > AclOperation.ANY)
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)

patterns = st.builds(
    ResourcePattern,
    st.sampled_from(KINDS),
    NAMES,
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
)
entries = st.builds(
    AccessControlEntry,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from((Permission.DENY, Permission.ALLOW, Permission.ALLOW)),
)
bindings = st.lists(st.builds(AclBinding, patterns, entries), max_size=12)
questions = st.tuples(
    st.sampled_from(("User:alice", "User:bob", "User:root")),
    st.sampled_from(("10.0.0.1", "10.0.0.3", "fe80:0:0:0:0:0:0:1%eth0")),
    st.sampled_from(OPERATIONS),
    st.sampled_from(KINDS),
    NAMES,
)
defaults = st.builds(Defaults, st.sampled_from((frozenset(), frozenset({"User:root"}))), st.booleans())
filters = st.builds(
    AclFilter,
    st.sampled_from((ResourceType.ANY, *KINDS)),
    st.none() | NAMES,
    st.sampled_from((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
    st.none() | st.sampled_from(PRINCIPALS),
    st.none() | st.sampled_from(HOSTS),
    st.sampled_from((AclOperation.ANY, *OPERATIONS)),
    st.sampled_from((Permission.ANY, Permission.DENY, Permission.ALLOW)),
)
Question = tuple[str, str, AclOperation, ResourceType, str]


def snapshot_of(all_: Iterable[AclBinding], given_defaults: Defaults) -> AclSnapshot:
    acls: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in all_:
        acls.setdefault(pattern, set()).add(entry)
    return AclSnapshot({pattern: frozenset(own) for pattern, own in acls.items()}, given_defaults)


def is_about(
    entry: AccessControlEntry, principal: str, host: str, operations: Iterable[AclOperation]
) -> bool:
    here = "fe80::1" if host.startswith("fe80:") else host
    return (
        entry.principal in (principal, "User:*")
        and entry.host in (here, "*")
        and entry.operation in (*operations, AclOperation.ALL)
    )


def covers(pattern: ResourcePattern, name: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def slow_verdict(all_: Sequence[AclBinding], given_defaults: Defaults, question: Question) -> bool:
    principal, host, operation, kind, name = question
    if principal in given_defaults.super_users:
        return True
    about = [entry for pattern, entry in all_ if pattern.resource_type == kind and covers(pattern, name)]
    if not about:
        return given_defaults.everyone_if_no_acl
    for entry in about:
        if entry.permission == Permission.DENY and is_about(entry, principal, host, [operation]):
            return False
    permitting = [operation]
    if operation == AclOperation.DESCRIBE:
        permitting += [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER]
    if operation == AclOperation.DESCRIBE_CONFIGS:
        permitting += [AclOperation.ALTER_CONFIGS]
    return any(
        entry.permission == Permission.ALLOW and is_about(entry, principal, host, permitting)
        for entry in about
    )


@settings(deadline=None)
@given(bindings, defaults, st.lists(questions, min_size=1, max_size=8))
def test_the_snapshot_decides_as_a_slow_reading_of_the_rules(all_, given_defaults, asked) -> None:
    snapshot = snapshot_of(all_, given_defaults)
    # Of the questions at random, few are about two ACLs that meet.
    met = [
        (who, host, entry.operation, pattern.resource_type, pattern.name)
        for pattern, entry in all_
        if entry.operation != AclOperation.ALL
        for who, host in product(("User:alice", "User:bob"), ("10.0.0.1", "10.0.0.3"))
    ]
    for question in (*asked, *met, *asked):  # the second time from what is kept
        assert snapshot.allows(*question) is slow_verdict(all_, given_defaults, question)


@settings(deadline=None)
@given(bindings, defaults, questions)
def test_any_resource_is_allowed_if_and_only_if_there_is_a_name_that_is(all_, given_defaults, asked) -> None:
    """Without implied operations, and with what allow.everyone.if.no.acl.found would add left aside, as in Kafka."""
    principal, host, operation, kind, _ = asked
    if operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        operation = AclOperation.WRITE
    snapshot = snapshot_of(all_, given_defaults._replace(everyone_if_no_acl=False))
    # Every pattern's name, alone and with an end that no other pattern has.
    names = {name + end for (_, name, _), _ in all_ for end in ("", "zz")} | {"zz"}
    some = any(snapshot.allows(principal, host, operation, kind, name) for name in names)
    # An allowed literal "*" counts even if prefixes deny every name that there is: Kafka's rule too.
    assert snapshot.allows_any(principal, host, operation, kind) is some


@settings(deadline=None)
@given(bindings, filters)
def test_a_filter_selects_what_it_says(all_, wanted) -> None:
    def fits(pattern: ResourcePattern) -> bool:
        if wanted.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if wanted.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY):
            same_kind = wanted.pattern_type in (PatternType.ANY, pattern.pattern_type)
            return same_kind and wanted.name in (None, pattern.name)
        return wanted.name is None or covers(pattern, wanted.name)

    def has(entry: AccessControlEntry) -> bool:
        return (
            wanted.principal in (None, entry.principal)
            and wanted.host in (None, entry.host)
            and wanted.operation in (AclOperation.ANY, entry.operation)
            and wanted.permission in (Permission.ANY, entry.permission)
        )

    expected = {binding for binding in all_ if fits(binding.pattern) and has(binding.entry)}
    assert set(snapshot_of(all_, Defaults()).bindings(wanted)) == expected
    # Whatever is selected lies under one of the exact patterns, if there are any.
    exact = set(wanted.exact_patterns())
    if exact and wanted.pattern_type is not PatternType.MATCH:
        assert {binding.pattern for binding in expected} <= exact
