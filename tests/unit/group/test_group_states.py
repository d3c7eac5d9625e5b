"""The group's states: the table against the documented diagram, and the pure parts of a group."""

from __future__ import annotations

import time

import pytest

from broker.coordinator.group.group import Group
from broker.coordinator.group.member import Member
from broker.coordinator.group.messages import Moment
from broker.coordinator.group.states import TRANSITIONS, GroupState, InvalidGroupTransition

NOW = Moment(1_000, 5_000)

DIAGRAM = """
    Empty -> PreparingRebalance | Dead
    PreparingRebalance -> CompletingRebalance | Empty | Dead
    CompletingRebalance -> Stable | PreparingRebalance | Dead
    Stable -> PreparingRebalance | Dead
    Dead -> Dead
"""


def member(member_id: str, *protocols: str, instance: str | None = None) -> Member:
    return Member(
        member_id,
        instance,
        client_id="client",
        client_host="/host",
        rebalance_timeout_ms=10,
        session_timeout_ms=10,
        protocols=tuple((p, p.encode()) for p in protocols),
    )


def group_of(*members: Member) -> Group:
    group = Group("g", NOW)
    group.protocol_type = "consumer"
    for one in members:
        group.add(one, None)
    return group


def test_transitions_are_those_of_the_diagram():
    drawn = {}
    for line in DIAGRAM.strip().splitlines():
        state, targets = line.split("->")
        drawn[GroupState(state.strip())] = frozenset(GroupState(t.strip()) for t in targets.split("|"))
    assert drawn == TRANSITIONS


@pytest.mark.parametrize("state", GroupState)
def test_dead_group_can_only_stay_dead(state):
    group = group_of()
    group.transition_to(GroupState.DEAD, NOW)
    if state is GroupState.DEAD:
        group.transition_to(state, NOW)
    else:
        with pytest.raises(InvalidGroupTransition, match="g: Dead -> "):
            group.transition_to(state, NOW)


def test_transition_stamps_wall_time():
    group = group_of()
    group.transition_to(GroupState.PREPARING_REBALANCE, Moment(1, 77))
    assert group.state_timestamp_ms == 77


def test_first_member_leads_and_the_eldest_left_follows_it():
    group = group_of(member("a", "x"), member("b", "x"), member("c", "x"))
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    group.remove("c")
    assert group.leader_id is None


def test_most_votes_among_common_protocols_win():
    group = group_of(
        member("a", "sticky", "range", "own"), member("b", "range", "sticky"), member("c", "range", "sticky")
    )
    assert group.select_protocol() == "range"


def test_protocol_that_one_member_lacks_is_never_selected():
    group = group_of(member("a", "new", "old"), member("b", "new", "old"), member("c", "old"))
    assert group.select_protocol() == "old"


def test_tied_vote_does_not_depend_on_who_came_first():
    one = group_of(member("a", "range", "sticky"), member("b", "sticky", "range"))
    other = group_of(member("b", "sticky", "range"), member("a", "range", "sticky"))
    assert one.select_protocol() == other.select_protocol()


def test_empty_group_takes_any_protocol_but_none():
    group = Group("g", NOW)
    assert group.supports("consumer", (("range", b""),))
    assert not group.supports("consumer", ())
    assert not group.supports("", (("range", b""),))


def test_group_with_members_refuses_other_types_and_foreign_protocols():
    group = group_of(member("a", "range", "sticky"))
    group.transition_to(GroupState.PREPARING_REBALANCE, NOW)
    assert group.supports("consumer", (("sticky", b""), ("odd", b"")))
    assert not group.supports("connect", (("range", b""),))
    assert not group.supports("consumer", (("odd", b""),))


def test_removed_member_takes_its_support_and_its_instance_id_along():
    group = group_of(member("a", "range"), member("b", "range", "sticky", instance="i"))
    group.transition_to(GroupState.PREPARING_REBALANCE, NOW)
    assert not group.supports("consumer", (("sticky", b""),))
    group.remove("a")
    assert group.supports("consumer", (("sticky", b""),))
    group.remove("b")
    assert group.static_members == {}


def test_renamed_static_leader_still_leads_and_owes_its_sync():
    group = group_of(member("old", "range", instance="i"))
    group.pending_sync["old"] = None
    group.rename("old", "new")
    assert (group.leader_id, group.static_members, group.pending_sync) == ("new", {"i": "new"}, {"new": None})


def test_wake_is_the_earliest_deadline():
    first, second = member("a", "range"), member("b", "range")
    group = group_of(first, second)
    first.deadline_ms, second.deadline_ms = 900, 300
    group.add_pending_member("p", 500)
    group.join_deadline_ms = 400
    group.compute_wake()
    assert group.wake_at_ms == 300
    second.deadline_ms = None
    group.compute_wake()
    assert group.wake_at_ms == 400


def test_a_change_of_protocols_changes_votes_metadata_and_support():
    one, two = member("one", "range", "sticky"), member("two", "sticky", "range", "sticky")
    group = group_of(one, two)
    group.transition_to(GroupState.PREPARING_REBALANCE, NOW)
    assert (group.select_protocol(), one.metadata("range")) == ("range", b"range")
    group.set_protocols(one, (("sticky", b"new"), ("range", b"newer")))
    assert (group.select_protocol(), one.metadata("range")) == ("sticky", b"newer")
    group.set_protocols(one, (("range", b"last"),))
    assert (group.select_protocol(), one.metadata("sticky"), one.metadata("range")) == ("range", b"", b"last")
    assert not group.supports("consumer", (("sticky", b""),))
    group.remove("two")
    assert not group.supports("consumer", (("sticky", b""),))
    assert group.supports("consumer", (("range", b""),))


@pytest.mark.parametrize("act", ["joins again", "leaves", "is described", "votes"])
def test_the_protocols_of_others_cost_nothing(act):
    """A client may send tens of thousands, and small requests of another member are served by the network thread."""
    many = [f"p{number}" for number in range(100_000)]
    group = group_of(member("many", *many, "range"), member("more", *many, "range"), member("few", "range"))
    group.protocol_name = group.select_protocol()
    few = group.members["few"]

    def acts():
        if act == "joins again":
            group.set_protocols(few, (("range", b"new"),))
        elif act == "leaves":
            group.remove("few")
            group.add(few, None)
        elif act == "is described":
            group.joined_members()
        else:
            assert group.select_protocol() == "range"

    acts()
    cost_ns = min(spent_ns(acts) for _ in range(5))
    assert cost_ns < min(spent_ns(lambda: [name for name in many if name == "range"]) for _ in range(5))


def spent_ns(act):
    began_ns = time.thread_time_ns()
    act()
    return time.thread_time_ns() - began_ns
