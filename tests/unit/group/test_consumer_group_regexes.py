"""Regular expressions of consumer groups (KIP-848): when they are matched, by whose rights, and with which locks."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.heartbeats import heartbeat
from broker.coordinator.group.consumer.messages import ClusterTopics, ConsumerGroupLimits, HeartbeatRequest
from broker.coordinator.group.consumer.records import TopicRecord
from broker.coordinator.group.messages import Moment
from broker.coordinator.group.regex_matches import RegexMatches, regex_to_match
from broker.protocol.errors import Errors
from tests.support.consumer_group_fakes import TOPIC, ConsumerHarness, parts
from tests.support.group_fakes import recounted_bytes


class WatchedTopics(dict[str, TopicRecord]):
    """Topics that call ``on_match`` whenever an expression is matched with them."""

    on_match: Callable[[], object] = staticmethod(lambda: None)

    def __iter__(self) -> Iterator[str]:
        self.on_match()
        return super().__iter__()


@pytest.fixture
def world() -> ConsumerHarness:
    return ConsumerHarness()


def watch(world: ConsumerHarness, on_match: Callable[[], object]) -> None:
    watched = WatchedTopics(world.topics.by_name)
    watched.on_match = on_match
    world.topics = ClusterTopics(world.topics.version, watched)


def names_of(world: ConsumerHarness, member_id: str) -> set[str]:
    return next(set(one.topics) for one, _ in world.described().members if one.member_id == member_id)


def but(*hidden: str) -> Callable[[object], set[str]]:
    """The rights of a client that may describe all topics but these."""
    return lambda names: set(names) - set(hidden)


def test_a_regular_expression_subscribes_to_all_topics_that_match(world):
    world.has_topics(t=4, u1=1, u2=2)
    told = world.enter("a", subscribed_regex="u.")
    assert sum(map(len, told.assignment.values())) == 7
    world.has_topics(t=4, u1=1, u2=2, u3=3, v=1)
    assert sum(map(len, world.beat("a", 1).assignment.values())) == 10


def test_a_full_request_with_a_regular_expression_alone_is_told_its_assignment(world):
    world.enter("a", subscribed_regex="t")
    again = world.beat("a", 1, subscribed_regex="t", rebalance_timeout_ms=1, owned={TOPIC: {0, 1, 2, 3}})
    assert parts(again) == {0, 1, 2, 3}


def test_a_regular_expression_is_changed_and_given_up(world):
    world.has_topics(t=4, u=2)
    fields = {"rebalance_timeout_ms": 1, "owned": {}, "subscribed_names": frozenset()}
    assert parts(world.beat("a", 0, subscribed_regex="t|u", **fields)) == {0, 1, 2, 3}
    world.beat("a", 1, subscribed_regex="u", owned={})
    assert [len(member.assigned) for member, _ in world.described().members] == [1]
    world.beat("a", 2, subscribed_regex="", owned={})
    assert [len(member.assigned) for member, _ in world.described().members] == [0]


def test_a_regular_expression_matches_only_what_the_client_may_describe(world):
    world.has_topics(t=4, u=2)
    told = world.enter("a", "none", subscribed_regex=".*", may_describe=lambda names: set(names) - {"u"})
    assert told.assignment == {TOPIC: {0, 1, 2, 3}}


def test_a_new_coordinator_knows_what_a_regular_expression_matches(world):
    world.enter("a", "none", subscribed_regex="t.*")
    before = world.described()
    end = world.appender.log(0).log_end_offset
    world.restart()
    assert world.described() == before
    assert world.held_bytes == recounted_bytes(world.coordinator)
    assert parts(world.beat("a", 1)) is None
    assert world.appender.log(0).log_end_offset == end
    world.beat("a", -1)
    world.coordinator.delete_expired()
    assert set({r.key: r.value for r in world.appender.log(0).records()}.values()) == {None}
    assert world.held_bytes == 0


def test_a_wrong_regular_expression_is_refused_and_changes_nothing(world):
    world.enter("a")
    assert world.beat("a", 1, subscribed_regex="(").error is Errors.INVALID_REGULAR_EXPRESSION
    assert world.beat("a", 1).member_epoch == 1
    assert world.enter("b", subscribed_regex="(").error is Errors.INVALID_REGULAR_EXPRESSION
    assert len(world.described().members) == 1


def test_a_regular_expression_that_no_key_can_hold_is_refused(world):
    regex = "[" + "\N{GRINNING FACE}" * 9_000 + "]"
    assert world.enter("a", subscribed_regex=regex).error is Errors.INVALID_REQUEST
    assert world.described().members == ()


# --- when, by whose rights, and with which locks


def test_the_group_serves_others_while_an_expression_is_matched(world):
    answered: list[bool] = []

    def somebody_asks(names=()):
        asking = threading.Thread(target=world.described, daemon=True)
        asking.start()
        asking.join(5)
        answered.append(not asking.is_alive())
        return names

    world.enter("a", subscribed_regex="t.*")
    world.has_topics(t=4, tt=1)
    watch(world, somebody_asks)
    world.beat("a", 1, may_describe=somebody_asks)
    assert answered == [True, True]
    assert names_of(world, "a") == {"t", "tt"}


def test_an_expression_is_matched_once_for_all_members_and_groups(world):
    matched: list[int] = []
    watch(world, lambda: matched.append(1))
    for number in range(5):
        world.enter(f"m{number}", subscribed_regex="t.*")
        world.enter(f"m{number}", subscribed_regex="t.*", group="other")
    assert len(matched) == 1
    world.has_topics(t=4, tt=1)
    watch(world, lambda: matched.append(1))
    for number in range(5):
        world.beat(f"m{number}", number + 1)
    assert len(matched) == 2


def test_the_rights_are_asked_for_when_they_may_have_changed_and_only_then(world):
    asked: list[int] = []

    def may_describe(names):
        asked.append(1)
        return names

    world.enter("a", subscribed_regex="t.*", rights=1, may_describe=may_describe)
    for rights in (1, 1, 2, 2):
        world.beat("a", 1, rights=rights, may_describe=may_describe)
    assert len(asked) == 2


def test_a_member_gets_and_loses_topics_when_the_acls_change(world):
    world.has_topics(t=4, tt=2)
    world.enter("a", "none", subscribed_regex="t.*", rights="no", may_describe=but("tt"))
    assert names_of(world, "a") == {"none", "t"}
    told = world.beat("a", 1, rights="all")
    assert told.member_epoch == 2
    assert sum(map(len, told.assignment.values())) == 6
    told = world.beat("a", 2, rights="none", may_describe=but("t", "tt"))
    assert told.assignment == {}
    assert names_of(world, "a") == {"none"}


def test_the_rights_of_one_client_do_not_decide_about_anothers_expression(world):
    world.enter("a", subscribed_regex="t.*")
    world.enter("b", subscribed_regex=".*")
    world.has_topics(t=4, tt=1)
    world.beat("b", 2, may_describe=but("t", "tt"))
    assert (names_of(world, "a"), names_of(world, "b")) == ({"t"}, {"t"})
    world.beat("a", 1)
    assert names_of(world, "a") == {"t", "tt"}


def test_a_new_member_brings_the_newest_topics_to_all_that_have_its_expression(world):
    world.enter("a", subscribed_regex="t.*")
    world.enter("b")
    world.has_topics(t=4, tt=1)
    epoch = world.described().epoch
    world.beat("b", 2, subscribed_regex="t.*", subscribed_names=frozenset({"tt"}))
    assert names_of(world, "a") == {"t", "tt"}
    assert world.described().epoch == epoch + 1


def test_an_expression_that_many_topics_make_too_dear_keeps_those_that_it_has(world):
    dear = "(a|b)*a(a|b){14}|t"
    world.enter("a", subscribed_regex=dear)
    names = ["".join("ab"[number * 7919 >> bit % 23 & 1] for bit in range(200)) for number in range(2_000)]
    world.has_topics(t=4, **dict.fromkeys(names, 1))
    assert world.beat("a", 1).error is Errors.NONE
    assert names_of(world, "a") == {"t"}
    assert world.enter("b", subscribed_regex=dear + "|u").error is Errors.INVALID_REGULAR_EXPRESSION


def test_a_member_with_an_older_result_does_not_wait_for_another_match(world):
    world.enter("a", subscribed_regex="t.*")
    world.enter("b", subscribed_regex="t+")
    world.has_topics(t=4, tt=1)
    meanwhile: list[Errors] = []
    watch(world, lambda: meanwhile.append(world.beat("b", 2).error))
    world.beat("a", 1)
    assert meanwhile == [Errors.NONE]
    assert names_of(world, "b") == {"t"}
    watch(world, lambda: None)
    world.beat("b", 2)
    assert names_of(world, "b") == {"t", "tt"}


def test_an_expression_whose_last_member_goes_meanwhile_is_matched_with_the_next_heartbeat():
    world = RegexGroup()
    world.beat("a", 0)
    late = world.request("b", 0)
    assert regex_to_match(world.group, late, TOPICS) is None, "another member has it"
    world.beat("a", -1)
    world.carry_out(late)
    assert world.group.members["b"].topics == {"none"}
    world.beat("b", 3)
    assert world.group.members["b"].topics == {"none", "t"}


TOPICS = ClusterTopics(1, {"t": TopicRecord(uuid.UUID(int=1), "t", 1)})


class RegexGroup:
    """A group whose requests are prepared and carried out one by one."""

    def __init__(self) -> None:
        self.group = ConsumerGroup("g")

    def request(self, member_id: str, epoch: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            member_id,
            epoch,
            lambda _result: None,
            rebalance_timeout_ms=1,
            subscribed_names=frozenset({"none"}),
            subscribed_regex="t.*",
            owned={},
        )

    def beat(self, member_id: str, epoch: int) -> None:
        request = self.request(member_id, epoch)
        missing = regex_to_match(self.group, request, TOPICS)
        self.carry_out(RegexMatches().matched(request, missing, TOPICS))

    def carry_out(self, request: HeartbeatRequest) -> None:
        heartbeat(self.group, request, Moment(0, 0), ConsumerGroupLimits(), TOPICS)
