"""The walk that a seed stands for: always the same, the whole table dealt, nothing that cannot be done here."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.faults import FAULTS, Role
from chaos.scenarios import LONG_SCENARIOS, SCENARIOS, steps
from chaos.scripts import SCRIPTS
from chaos.walk import segments


def test_a_seed_is_always_the_same_walk():
    assert steps(7, 120, data_disks=True) == steps(7, 120, data_disks=True)


def test_a_longer_walk_begins_as_the_shorter_one_of_its_seed():
    assert steps(7, 200, data_disks=True)[:30] == steps(7, 30, data_disks=True)


def test_other_seeds_are_other_walks():
    walks = {tuple(str(step) for step in steps(seed, 20, data_disks=True)) for seed in range(20)}
    assert len(walks) == 20


def test_two_hundred_rounds_have_every_scenario_and_quick_ones_in_each_deal():
    walk = steps(1, 200, data_disks=True)
    assert {step.scenario for step in walk} == set(SCENARIOS)
    times = Counter(step.scenario for step in walk)
    quick = [each for each in SCENARIOS if each.every == 1]
    assert min(times[each] for each in quick) >= 200 // len(SCENARIOS)
    assert max(times.values()) <= 200 // len(quick) + 1


def test_rounds_are_numbered_and_last_as_long_as_their_scenario_says():
    walk = steps(3, 150, data_disks=True)
    assert [step.number for step in walk] == list(range(1, 151))
    for step in walk:
        shortest, longest = step.scenario.hold_s
        assert shortest <= step.hold_s <= longest, step


def test_disks_are_not_broken_where_hosts_have_none_of_their_own():
    faults = {step.scenario.fault for step in steps(1, 200, data_disks=False)}
    assert not faults & {"full disk", "read-only disk"}
    assert "power loss" in faults


def test_faults_of_a_minute_are_dealt_on_demand():
    assert set(LONG_SCENARIOS) <= {step.scenario for step in steps(1, 200, data_disks=True, long=True)}


def test_a_walk_can_be_of_a_few_scenarios_only():
    walk = steps(1, 30, data_disks=True, only=["SIGKILL", "leader frozen"])
    assert {step.scenario.fault for step in walk} == {"SIGKILL", "ZooKeeper leader frozen"}
    with pytest.raises(ValueError, match="no scenario"):
        steps(1, 30, data_disks=True, only=["earthquake"])


def test_a_walk_is_cut_into_segments_and_scripts_stand_alone():
    walk = steps(5, 200, data_disks=True)
    cut = list(segments(walk, 20))
    assert [step for segment in cut for step in segment] == walk
    assert max(len(segment) for segment in cut) == 20
    alone = [segment for segment in cut if any(step.scenario.fault in SCRIPTS for step in segment)]
    assert alone
    assert {len(segment) for segment in alone} == {1}


def test_every_fault_is_in_the_table_and_every_role_is_hit():
    table = [*SCENARIOS, *LONG_SCENARIOS]
    assert {each.fault for each in table} == {*FAULTS, *SCRIPTS}
    assert {each.role for each in table} == set(Role)
