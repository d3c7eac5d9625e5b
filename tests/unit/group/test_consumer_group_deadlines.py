"""What it costs when the sessions of many members of a consumer group end, counted in steps of the interpreter."""

from __future__ import annotations

import sys
import uuid
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.group.consumer.deadlines import Deadlines
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.heartbeats import heartbeat, on_time
from broker.coordinator.group.consumer.messages import ClusterTopics, ConsumerGroupLimits, HeartbeatRequest
from broker.coordinator.group.consumer.records import TopicRecord
from broker.coordinator.group.messages import NEVER_MS, Append, Moment

LIMITS = ConsumerGroupLimits(session_timeout_ms=45_000)
TOPICS = ClusterTopics(1, {"t": TopicRecord(uuid.UUID(int=1), "t", 4)})


class Counted(int):
    """A time that counts how often times are compared, also inside C: by ``min``, in a list, in a heap."""

    compared = 0

    def __add__(self, other: int) -> Counted:
        return Counted(int(self) + other)

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < other

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= other

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > other

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def group_of(size: int, every_ms: int = 0) -> ConsumerGroup:
    """A stored group whose members have joined so far apart, and have the same regular expression."""
    group = ConsumerGroup("g")
    group.topics_version = TOPICS.version
    for number in range(size):
        request = HeartbeatRequest(
            f"m{number}",
            0,
            lambda _result: None,
            rebalance_timeout_ms=30_000,
            subscribed_names=frozenset({"t"}),
            subscribed_regex="u.*",
            owned={},
        )
        heartbeat(group, request, at(number * every_ms), LIMITS, TOPICS)
    group.unstored.noted.clear()
    return group


def at(time_ms: int) -> Moment:
    return Moment(Counted(time_ms), time_ms)


def steps(group: ConsumerGroup, now_ms: int) -> tuple[int, list[Any]]:
    """The steps of the interpreter and the comparisons of times while deadlines pass, and the effects."""
    counted = 0
    Counted.compared = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        effects = on_time(group, at(now_ms))
        group.next_deadline_ms()
    finally:
        sys.settrace(before)
    return counted + Counted.compared, effects


def test_sessions_that_end_together_are_one_change_and_one_write():
    group = group_of(300)
    epoch = group.epoch
    _, effects = steps(group, LIMITS.session_timeout_ms)
    assert not group.members
    assert group.epoch == epoch + 1
    assert len(effects) == 1
    assert isinstance(effects[0], Append)


def test_sessions_that_end_together_cost_the_same_for_each_member():
    few, _ = steps(group_of(100), LIMITS.session_timeout_ms)
    many, _ = steps(group_of(300), LIMITS.session_timeout_ms)
    assert many < 3 * few * 1.3


@pytest.mark.parametrize("live", [False, True], ids=["all have died", "the others live"])
def test_one_session_that_ends_costs_no_more_in_a_larger_group(live):
    """A host's members die together, but each session ends so long after the member's last heartbeat."""
    costs = []
    for size in (50, 400):
        group = group_of(size, every_ms=10)
        now_ms = LIMITS.session_timeout_ms
        if live:
            for member_id in list(group.members)[10:]:
                group.sessions.set(member_id, Counted(now_ms + 44_000))
        costs.append(0)
        for gone in range(
            9
        ):  # the tenth makes the queue up for the heartbeats of all others, once in a session
            cost, _ = steps(group, now_ms + gone * 10)
            costs[-1] += cost
        assert len(group.members) == size - 9
    assert costs[1] < costs[0] * 1.5, costs


# --- the queue of deadlines

MEMBERS = st.sampled_from("abcd")
CHANGES = st.one_of(
    st.tuples(st.just("set"), MEMBERS, st.integers(0, 20)),
    st.tuples(st.just("drop"), MEMBERS, st.just(0)),
    st.tuples(st.just("late"), st.just(""), st.integers(0, 20)),
)


@given(st.lists(CHANGES, max_size=60))
def test_deadlines_are_those_that_were_set_last(changes):
    deadlines, known = Deadlines(), dict[str, int]()
    for what, member_id, time_ms in changes:
        if what == "set":
            deadlines.set(member_id, time_ms)
            known[member_id] = time_ms
        elif what == "drop":
            deadlines.drop(member_id)
            known.pop(member_id, None)
        else:
            late = {one for one, due_ms in known.items() if due_ms <= time_ms}
            taken = deadlines.take_late(time_ms)
            assert (len(taken), set(taken)) == (len(late), late)
            known = {one: due_ms for one, due_ms in known.items() if one not in late}
        assert deadlines.next_ms() == min(known.values(), default=NEVER_MS)
        assert {one: deadlines.get(one) for one in deadlines.keys()} == known  # noqa: SIM118 - not a dict


def test_members_that_come_and_go_leave_nothing_in_the_queue():
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set(f"m{number}", 1_000_000)
        deadlines.drop(f"m{number}")
        deadlines.set("stays", 2_000_000 - number)
    assert len(deadlines._queue) < 100
