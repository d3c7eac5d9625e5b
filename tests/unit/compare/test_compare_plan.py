"""What a comparison does, and in which order."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from compare import settings
from compare.scenarios import RULES, Fault, Model, Scenario, System, host_counts, plan

DOCS = Path(__file__).parents[3] / "docs"


def test_every_scenario_has_its_rule_and_its_place_in_the_schema():
    schema = (DOCS / "lifecycle.md").read_text()
    assert set(RULES) == set(Scenario)
    named = re.search(r"\| `scenario` \| string \| (.*?) \|", schema)
    assert named is not None
    assert re.findall(r"`([a-z-]+)`", named[1]) == [str(scenario) for scenario in Scenario]


def test_every_scenario_is_explained():
    text = (DOCS / "compare.md").read_text()
    assert [scenario for scenario in Scenario if f"`{scenario}`" not in text] == []


@pytest.mark.parametrize(
    "words",
    [
        f"comes {settings.PATIENCE_S:g} s after",
        f"it comes back after {settings.OUTAGE_S:g} s",
        f"{settings.DURING_S:g} s in",
        f"given up after {settings.RUN_LIMIT_S:g} s",
        f"every {settings.POLL_S * 1000:g} ms",
        f"every {settings.MASTER_POLL_S * 1000:g} ms",
        f"{settings.SLOW_KBIT / 1000:g} Mbit/s",
    ],
)
def test_the_document_has_the_constants_that_are_measured_with(words):
    assert words in (DOCS / "compare.md").read_text()


@pytest.mark.parametrize(
    ("scenario", "victim"),
    [(Scenario.MASTER_DEAD_DURING, "h1"), (Scenario.CRASH, "h3"), (Scenario.DEAD_HOST, "h3")],
)
def test_a_fault_hits_the_masters_host_or_the_last(scenario, victim):
    assert RULES[scenario].victim(["h1", "h2", "h3"]) == victim


def test_only_faults_of_power_hit_the_master():
    assert {rule.fault for rule in RULES.values() if rule and rule.on_master} == {Fault.NO_POWER}


def test_every_system_has_every_scenario_in_every_round_and_every_model_the_cold_start():
    runs = plan(3, 2)
    pairs = len(System) * len(Model)
    assert len(runs) == len(set(runs)) == 2 * (pairs + (len(Scenario) - 1) * (pairs - len(System)))
    assert [run.number for run in runs] == list(range(1, len(runs) + 1))


def test_a_fault_is_pushed_in_turn_only_where_it_is_not_pushed_in_parallel():
    crash = plan(3, 1, [Scenario.CRASH])
    assert {run.model for run in crash} == {Model.INDEPENDENT, Model.PUSH_PARALLEL}
    in_turn = plan(3, 1, [Scenario.CRASH], models=[Model.PUSH_SEQUENTIAL])
    assert {run.model for run in in_turn} == {Model.PUSH_SEQUENTIAL}


def test_who_is_first_moves_on_with_every_round():
    runs = plan(3, 6, [Scenario.COLD_START])
    firsts = [next(run for run in runs if run.round == number) for number in range(1, 7)]
    assert len({(run.system, run.model) for run in firsts}) == 6


def test_systems_and_models_take_turns_within_a_scenario():
    runs = [run for run in plan(3, 1, [Scenario.CRASH]) if run.round == 1]
    assert all(one.system != two.system for one, two in itertools.pairwise(runs))


def test_only_the_cold_start_is_measured_with_fewer_hosts():
    assert host_counts(4) == [1, 2, 4]
    assert host_counts(1) == [1]
    runs = plan(4, 1, [Scenario.COLD_START, Scenario.CRASH], cold_start_hosts=host_counts(4))
    counts = {scenario: {run.hosts for run in runs if run.scenario is scenario} for scenario in RULES}
    assert counts[Scenario.COLD_START] == {1, 2, 4}
    assert counts[Scenario.CRASH] == {4}
