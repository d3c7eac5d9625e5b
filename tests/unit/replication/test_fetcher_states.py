"""The states of a follower's fetcher: the table is the one that its module shows, and what follows from it."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster.partition import Partition
from broker.replication import fetcher_states
from broker.replication.fetcher_states import (
    TRANSITIONS,
    Changes,
    FetcherEvent,
    FetcherMachine,
    FetcherState,
    Instruction,
    Plan,
    Reaction,
)
from broker.replication.follower_fetch import Followed
from broker.utils.topic_partition import TopicPartition

TOPIC_ID = uuid.uuid4()
NOW_MS = 1000


def followed(index: int, leader_epoch: int = 0) -> Followed:
    partition: Any = SimpleNamespace(topic_partition=TopicPartition("t", index))
    return Followed(cast(Partition, partition), TOPIC_ID, leader_epoch)


@pytest.fixture
def machine() -> FetcherMachine:
    """It follows t-0 and t-1, and asks for both."""
    machine = FetcherMachine()
    machine.add([followed(0), followed(1)])
    machine.plan(NOW_MS)
    machine.on(FetcherEvent.CONNECTED)
    return machine


def test_the_table_is_the_one_that_is_written_down() -> None:
    (_, _, table, _) = str(fetcher_states.__doc__).split("\n========== ============  ========== ===========")
    written = set()
    for line in table.strip().splitlines():
        state, event, then, instruction = (
            line[a:b].strip() for a, b in ((0, 11), (11, 25), (25, 36), (36, 99))
        )
        states = list(FetcherState) if state == "any" else [FetcherState(state)]
        for each in states:
            key = (each, FetcherEvent(event))
            written.add((key, (FetcherState(then), Instruction(instruction or "nothing"))))
    assert written == set(TRANSITIONS.items())


def test_what_is_not_in_the_table_changes_nothing() -> None:
    for state in FetcherState:
        for event in FetcherEvent:
            machine = FetcherMachine()
            machine.state = state
            if (state, event) not in TRANSITIONS:
                assert machine.on(event) is Instruction.NOTHING
                assert machine.state is state


def test_with_nothing_to_follow_it_waits_to_be_told() -> None:
    machine = FetcherMachine()
    assert machine.plan(NOW_MS) == Plan([], None, is_anew=False)
    assert machine.state is FetcherState.IDLE


def test_what_is_added_while_it_asks_has_the_request_given_up_and_all_asked_anew(
    machine: FetcherMachine,
) -> None:
    assert machine.add([followed(2)]) is Instruction.INTERRUPT
    assert machine.state is FetcherState.GIVEN_UP
    assert machine.unreachable() is Reaction.NOTHING
    machine.on(FetcherEvent.ENDED)
    plan = machine.plan(NOW_MS)
    assert plan.is_anew
    assert [item.index for item in plan.ready] == [0, 1, 2]
    assert not machine.plan(NOW_MS).is_anew


def test_a_connection_that_was_interrupted_when_it_was_asked_nothing_is_not_used_again(
    machine: FetcherMachine,
) -> None:
    machine.add([followed(2)])
    assert machine.on(FetcherEvent.ENDED) is Instruction.RECONNECT


def test_what_is_added_while_it_connects_leaves_the_connection_alone() -> None:
    machine = FetcherMachine()
    machine.add([followed(0)])
    machine.plan(NOW_MS)
    assert machine.add([followed(1)]) is Instruction.NOTHING
    assert machine.on(FetcherEvent.CONNECTED) is Instruction.NOTHING
    assert machine.state is FetcherState.IDLE
    assert machine.plan(NOW_MS).is_anew


def test_a_loop_asks_on_while_nothing_but_removals_happened(machine: FetcherMachine) -> None:
    machine.on(FetcherEvent.INVITED)
    assert machine.goes_well(2)
    machine.remove({TopicPartition("t", 1)})
    assert machine.changes is Changes.REMOVED
    assert machine.look() == [followed_now(machine, 0)]
    assert machine.changes is Changes.NOTHING
    machine.put_off(followed_now(machine, 0), NOW_MS + 50)
    assert machine.look() is None


def test_who_waits_out_an_error_is_asked_for_when_its_time_has_come(machine: FetcherMachine) -> None:
    machine.put_off(followed_now(machine, 0), NOW_MS + 50)
    assert not machine.goes_well(1)
    machine.on(FetcherEvent.ENDED)
    plan = machine.plan(NOW_MS)
    assert [item.index for item in plan.ready] == [1]
    assert (plan.delay_ms, plan.is_anew) == (50, False)
    assert not machine.goes_well(len(plan.ready))
    assert [item.index for item in machine.plan(NOW_MS + 50).ready] == [0, 1]


def test_a_role_that_is_no_more_is_not_put_off(machine: FetcherMachine) -> None:
    before = followed_now(machine, 0)
    machine.add([followed(0, leader_epoch=1)])
    machine.put_off(before, NOW_MS + 50)
    assert [item.index for item in machine.plan(NOW_MS).ready] == [0, 1]


def test_a_leader_that_is_unreachable_is_told_once_until_it_answers(machine: FetcherMachine) -> None:
    assert machine.unreachable() is Reaction.TELL
    assert machine.unreachable() is Reaction.PAUSE
    assert machine.reached()
    assert not machine.reached()
    assert machine.unreachable() is Reaction.TELL


def test_who_is_stopped_asks_nothing_more_and_complains_of_nothing(machine: FetcherMachine) -> None:
    machine.on(FetcherEvent.STOPPED)
    assert machine.is_stopped
    assert machine.unreachable() is Reaction.PAUSE
    assert not machine.goes_well(2)
    assert machine.add([followed(3)]) is Instruction.NOTHING
    machine.plan(NOW_MS)
    machine.on(FetcherEvent.ENDED)
    assert machine.is_stopped


def followed_now(machine: FetcherMachine, index: int) -> Followed:
    return machine.followed[TOPIC_ID, index]
