"""What Metadata shows to whom: kept while nothing changes, and never shown to another principal."""

from __future__ import annotations

import uuid
from dataclasses import replace

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import PartitionInfo
from broker.protocol.errors import Errors
from broker.security.acls import AclOperation, ResourceType
from broker.security.authorizer import Authorizer
from broker.server.access import Access
from broker.server.apis.metadata_access import VisibleTopics
from broker.server.audit import AuditLog
from broker.server.metadata_cache import Snapshot
from tests.support.clocks import ManualClock

ID = uuid.UUID(int=5)
ONE = {0: PartitionInfo(0, 1, 0, (1,), (1,))}
SNAPSHOT = Snapshot(1, 1, {}, {"a": ONE, "b": ONE}, {"a": ID}, {ID: "a"})


class Rules(Authorizer):
    """Who may describe what; counts the questions."""

    def __init__(self, **permitted: str) -> None:
        self.permitted = {f"User:{name}": topics for name, topics in permitted.items()}
        self.now: object = object()
        self.asked = 0

    def authorize(self, requester, operation, resource_type, name) -> bool:
        assert (operation, resource_type) == (AclOperation.DESCRIBE, ResourceType.TOPIC)
        self.asked += 1
        return name in self.permitted.get(requester.principal, "")

    def version(self) -> object:
        return self.now


class Site:
    def __init__(self, **permitted: str) -> None:
        self.rules = Rules(**permitted)
        self.access = Access(self.rules, AuditLog(ManualClock()))
        self.topics = VisibleTopics()

    def shown(self, principal: str, wanted=None, snapshot: Snapshot = SNAPSHOT):
        connection = ConnectionInfo("c", "10.0.0.1", "L", principal=f"User:{principal}")
        request = Request(ApiKey.METADATA, 12, 1, "t", memoryview(b""), connection, 0, lambda *_: None)
        return self.topics.shown(request, wanted, snapshot, self.access)


def test_who_may_describe_all_topics_is_shown_all_and_others_their_own() -> None:
    site = Site(alice="ab", bob="b")
    for _ in range(2):
        assert site.shown("alice") == (None, [])
        assert site.shown("bob") == (("b",), [])
        assert site.shown("carol") == ((), [])
    assert site.rules.asked == 6  # the second time nobody was asked


def test_what_is_kept_ends_with_the_acls_and_with_the_clusters_state() -> None:
    site = Site(bob="b")
    assert site.shown("bob").wanted == ("b",)
    site.rules.permitted["User:bob"] = "ab"
    site.rules.now = object()
    assert site.shown("bob").wanted is None
    grown = replace(SNAPSHOT, topics={**SNAPSHOT.topics, "c": ONE})
    assert site.shown("bob", snapshot=grown).wanted == ("a", "b")


def test_nothing_is_kept_of_an_authorizer_whose_answers_may_change_at_any_time() -> None:
    site = Site(bob="b")
    site.rules.now = None
    assert site.shown("bob").wanted == ("b",)
    site.rules.permitted.clear()
    assert site.shown("bob").wanted == ()


def test_named_topics_are_refused_one_by_one_each_time() -> None:
    site = Site(bob="b")
    for asked in (2, 4):
        shown = site.shown("bob", ("a", "b"))
        assert shown.wanted == ("b",)
        (row,) = shown.refused
        assert (row["error_code"], row["name"]) == (Errors.TOPIC_AUTHORIZATION_FAILED, "a")
        assert site.rules.asked == asked
    assert site.shown("bob", ("b",)) == site.shown("bob", ("b",)) == (("b",), [])
    assert site.rules.asked == 5


def test_a_refused_id_keeps_its_topics_name_and_an_unknown_one_is_nobodys() -> None:
    unknown = uuid.UUID(int=9)
    shown = Site().shown("bob", (ID, unknown))
    assert shown.wanted == (unknown,)
    assert [(row["name"], row["topic_id"]) for row in shown.refused] == [(None, ID)]


def test_what_is_kept_has_a_bound() -> None:
    site = Site()
    for number in range(1_000):
        site.shown(f"p{number}")
    assert len(site.topics._answers.kept) <= 256


def test_questions_with_long_names_are_not_kept() -> None:
    """A hundred of them would fill the memory: each may have a thousand names of 32 KiB."""
    site = Site(alice="a")
    long = "a" * 40_000
    site.rules.permitted["User:alice"] = {long, "a"}  # type: ignore[assignment]
    for _ in range(2):
        assert site.shown("alice", (long,)).wanted == (long,)
        assert site.shown("alice", ("a",)).wanted == ("a",)
    assert site.rules.asked == 3
    assert [question[3] for question in site.topics._answers.kept] == [("a",)]
