"""The broker's states, held against the diagram that documents them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from broker.server.lifecycle import broker_state
from broker.server.lifecycle.broker_state import (
    TRANSITIONS,
    BrokerState,
    InvalidBrokerTransition,
    StateKeeper,
)


def documented_ways() -> set[tuple[str, str]]:
    ways = set()
    for line in (broker_state.__doc__ or "").splitlines():
        if "→" not in line:
            continue
        stages = [
            [name.strip() for name in stage.split("|")] for stage in re.split("[→]", line.split("(")[0])
        ]
        for left, right in pairwise(stages):
            for source in left:
                for target in right:
                    ways |= both_ways(source, target)
    return ways


def both_ways(source: str, target: str) -> set[tuple[str, str]]:
    """`A ⇄ B` within a stage stands for both directions."""
    ways = set()
    first, *rest = [name.strip() for name in target.split("⇄")]
    ways.add((source.rsplit("⇄", maxsplit=1)[-1].strip(), first))
    for other in rest:
        ways |= {(first, other), (other, first)}
    return ways


def test_transition_table_is_the_documented_diagram() -> None:
    table = {(source.name, target.name) for source, targets in TRANSITIONS.items() for target in targets}
    assert table == documented_ways()


def test_a_way_that_the_diagram_lacks_is_refused() -> None:
    with pytest.raises(InvalidBrokerTransition, match="NotRunning → RunningAsBroker"):
        StateKeeper().move_to(BrokerState.RunningAsBroker)


def test_election_during_start_up_shows_once_the_broker_runs() -> None:
    keeper = StateKeeper()
    keeper.move_to(BrokerState.Starting)
    keeper.set_controller(True)
    assert keeper.state is BrokerState.Starting
    keeper.move_to(BrokerState.RunningAsBroker)
    assert keeper.state is BrokerState.RunningAsController
    keeper.set_controller(False)
    assert keeper.state is BrokerState.RunningAsBroker
