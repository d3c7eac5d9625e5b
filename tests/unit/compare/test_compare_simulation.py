"""The simulation of starts: its limits, its validation against starts made from known parameters, its assumptions."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from compare.recorded import runs_of
from compare.simulation.assumptions import assumptions
from compare.simulation.faults import ASSUMED_SLOW_FACTOR, ASSUMED_TIMEOUT_MS, fault_costs
from compare.simulation.measured import Measured, MeasuredRun, in_parts, measure
from compare.simulation.push import begin_times
from compare.simulation.start import Plan, simulate
from compare.simulation.storms import storms_of
from compare.simulation.study import study
from compare.simulation.tables import print_study
from compare.simulation.validation import has_enough_rounds, validate, widening
from tests.support.comparison_samples import Sample, Times, events

NO_SPACING = np.zeros(5)
PUSHES = np.array([3.0, 1.0, 4.0, 1.0, 5.0])
STEADY = Times(own=1000, connect=100, command=200, prologue=50, spread=0.0)


def the_ends(lanes, spacing=NO_SPACING):
    return begin_times(PUSHES, spacing, lanes) + PUSHES


def made_up(**changes):
    return runs_of(events(replace(Sample(), **changes)))


def steady(**changes):
    return made_up(times={"landline": STEADY, "spark": STEADY}, **changes)


def found(measured, model, hosts=4, system="landline"):
    return next(each for each in measured if (each.system, each.model, each.hosts) == (system, model, hosts))


def test_one_lane_takes_the_sum_of_all_pushes():
    assert the_ends(1).max() == PUSHES.sum()


@pytest.mark.parametrize("lanes", [5, 6, 10_000])
def test_as_many_lanes_as_pushes_take_the_longest_push(lanes):
    assert the_ends(lanes).max() == PUSHES.max()


def test_two_lanes_take_each_push_when_the_first_is_free():
    assert list(begin_times(PUSHES, NO_SPACING, 2)) == [0, 0, 1, 3, 4]


def test_more_lanes_never_take_longer_for_these_pushes():
    ends = [the_ends(lanes).max() for lanes in range(1, 6)]
    assert ends == sorted(ends, reverse=True)


def test_a_push_waits_for_its_turn_though_lanes_are_free():
    assert list(begin_times(PUSHES, np.array([0.0, 2, 2, 2, 2]), 5)) == [0, 2, 4, 6, 8]


def test_one_lane_with_spacing_waits_for_the_later_of_turn_and_lane():
    assert list(begin_times(np.array([1.0, 1, 1]), np.array([0.0, 5, 0.5]), 1)) == [0, 5, 6]


def test_a_parallel_push_is_cut_into_prologue_push_and_tail():
    run = next(run for run in steady() if (run.model, run.scenario) == ("push-parallel", "cold-start"))
    parts = in_parts(run)
    assert parts is not None
    assert parts.prologue_ms == pytest.approx(50)
    assert list(parts.spacing_ms) == [0, 0]
    assert parts.occupied_ms == pytest.approx([300, 300])
    assert parts.tail_ms == pytest.approx([1000, 1000])


def test_a_push_in_turn_occupies_the_master_until_the_next_begins():
    runs = events(Sample(hosts=(3,), times={"landline": STEADY}))
    for event in runs:  # the master stands about for 70 ms before each push but the first
        if event["role"] == "launcher" and event["step"] != "Run" and event["instance"] != "broker-1":
            late = 70_000 * (int(event["instance"][-1]) - 1)
            event["start_us"] += late
            event["end_us"] += late
    run = next(run for run in runs_of(runs) if (run.model, run.scenario) == ("push-sequential", "cold-start"))
    parts = in_parts(run)
    assert parts is not None
    assert parts.occupied_ms == pytest.approx([370, 370, 300])


def test_a_start_in_which_not_all_served_is_no_source():
    run = steady()[0]
    assert in_parts(run) is not None
    assert in_parts(replace(run, all_ready_us=None)) is None


def test_without_spread_every_simulated_start_is_what_the_parameters_say():
    measured = measure(steady())
    alone = simulate(found(measured, "independent"), Plan(10_000), trials=2)
    assert alone.all_ready_ms == pytest.approx([1000, 1000])
    in_turn = simulate(found(measured, "push-sequential"), Plan(100), trials=2)
    assert in_turn.all_ready_ms == pytest.approx([50 + 100 * 300 + 1000] * 2)
    assert in_turn.first_ready_ms == pytest.approx([50 + 300 + 1000] * 2)
    ten_at_a_time = simulate(found(measured, "push-parallel"), Plan(100, lanes=10), trials=2)
    assert ten_at_a_time.all_ready_ms == pytest.approx([50 + 10 * 300 + 1000] * 2)
    assert list(ten_at_a_time.connections) == [100, 100]


def test_the_same_seed_gives_the_same_starts_and_another_others():
    measured = found(measure(made_up()), "push-parallel")
    first, again = (simulate(measured, Plan(50), 5).all_ready_ms for _ in range(2))
    assert list(first) == list(again)
    assert list(first) != list(simulate(measured, Plan(50), 5, seed=1).all_ready_ms)


def test_no_simulated_member_is_slower_than_measured_ones_allow():
    measured = found(measure(made_up()), "independent")
    slowest = max(run.tail_ms.max() for run in measured.runs)
    widest = max(run.tail_ms.max() - np.median(run.tail_ms) for run in measured.runs)
    assert simulate(measured, Plan(10_000), 20).all_ready_ms.max() <= slowest + widest


def test_failing_connections_leave_members_out_unless_they_are_tried_again():
    measured = found(measure(steady()), "push-parallel")
    once = simulate(measured, Plan(1000, failure=0.1, failing_ms=np.array([500.0])), 20)
    assert 70 < once.left_out.mean() < 130
    assert set(once.connections) == {1000}
    again = simulate(measured, Plan(1000, failure=0.1, retries=9, failing_ms=np.array([500.0])), 20)
    assert again.left_out.max() == 0
    assert 1070 < again.connections.mean() < 1150
    assert again.all_ready_ms.min() >= 50 + 500 + 300 + 1000


def test_a_start_that_reaches_nobody_never_comes_to_an_end():
    measured = found(measure(steady()), "push-parallel")
    nobody = simulate(measured, Plan(1, failure=0.999, failing_ms=np.array([500.0])), 3)
    assert list(nobody.left_out) == [1, 1, 1]
    assert list(nobody.all_ready_ms) == list(nobody.first_ready_ms) == [np.inf] * 3


def test_failing_connections_hold_up_those_that_wait_for_the_lane():
    measured = found(measure(steady()), "push-sequential")
    calm, rough = (
        simulate(measured, Plan(100, failure=failure, retries=9, failing_ms=np.array([1000.0])), 20)
        for failure in (0.0, 0.2)
    )
    assert rough.all_ready_ms.mean() == pytest.approx(calm.all_ready_ms.mean() + 25 * 1000, rel=0.15)


def test_slow_hosts_hold_up_a_start_by_their_factor():
    measured = found(measure(steady()), "independent")
    assert simulate(measured, Plan(1000, slow=0.5, slow_factor=7), 3).all_ready_ms == pytest.approx(
        [7000] * 3
    )


def test_the_error_is_small_where_the_data_come_from_known_parameters():
    sample = Sample(rounds=8, hosts=(3, 6))
    checks = validate(measure(runs_of(events(sample))))
    assert {(check.model, check.hosts, check.source) for check in checks} >= {
        ("push-parallel", 6, "other rounds"),
        ("push-sequential", 6, "3 hosts"),
    }
    assert max(abs(check.error) for check in checks) < 0.08
    assert sum(check.inside for check in checks) / sum(check.rounds for check in checks) > 0.7


def test_the_error_is_large_where_more_hosts_slow_each_other_down():
    runs = [run for run in steady() if run.scenario == "cold-start"]
    slowed = [
        replace(
            run,
            all_ready_us=2 * (run.all_ready_us or 0),
            steps=tuple(replace(step, end_us=2 * step.end_us - run.start_us) for step in run.steps),
        )
        if run.hosts == 4
        else run
        for run in runs
    ]
    checks = [check for check in validate(measure(slowed)) if check.source == "2 hosts"]
    assert {round(check.error, 1) for check in checks if check.model == "independent"} == {-0.5}
    assert all(score > 1.5 for check in checks for score in check.scores)


def test_a_round_is_not_predicted_from_itself():
    def one_run(ms):
        return MeasuredRun(0.0, np.zeros(1), np.zeros(1), np.array([ms]), ms, ms)

    measured = Measured("landline", "independent", 1, 1, (one_run(100.0), one_run(900.0)))
    (check,) = validate([measured])
    assert check.scores == (9.0, 9.0)
    assert check.measured_ms == check.simulated_ms == 500


def test_fault_costs_are_measured_where_faults_were_and_assumed_elsewhere():
    measured = fault_costs(steady(), "landline")
    assert (measured.connections, measured.failed) == (72, 0)
    assert measured.failure_bound == pytest.approx(3 / 72)
    assert measured.refused_ms == pytest.approx([30] * 12)
    assert list(measured.unanswered_ms) == [ASSUMED_TIMEOUT_MS]
    assert measured.stands_for_slow == pytest.approx(4)
    bare = fault_costs(steady(scenarios=("cold-start",), models=("independent",)), "landline")
    assert bare.failure_bound is None
    assert len(bare.refused_ms) == 0
    assert bare.stands_for_slow == ASSUMED_SLOW_FACTOR


def test_assumptions_say_what_was_measured_and_what_was_not():
    told = "\n".join(assumptions(study(steady(rounds=2, hosts=(4,)), largest=30)))
    assert "landline push-parallel from 8 in 2 rounds on 4 hosts;" in told
    assert "a refused connection takes as long as the 4 that were measured" in told
    bare = "\n".join(
        assumptions(study(steady(rounds=1, scenarios=("cold-start",), models=("independent",)), largest=3))
    )
    assert "refused connections were not measured, and are not simulated" in bare
    assert "10 s (assumed: none was measured)" in bare
    assert "how often connections fail by themselves is not known" in bare


def slowed_by_crowding(runs, per_host):
    """Each host more makes every start longer by so much, as on one machine."""
    return [
        replace(
            run,
            all_ready_us=round((run.all_ready_us or 0) * (1 + per_host * run.hosts)),
            steps=tuple(
                replace(
                    step,
                    end_us=step.start_us + round((step.end_us - step.start_us) * (1 + per_host * run.hosts)),
                )
                for step in run.steps
            ),
        )
        for run in runs
    ]


@pytest.mark.parametrize("per_host", [0.0, 0.1])
def test_the_band_holds_four_of_five_rounds_left_out(per_host):
    inside = rounds = 0
    for seed in range(4):
        runs = made_up(seed=seed, hosts=(1, 2, 4), scenarios=("cold-start",))
        checks = validate(measure(slowed_by_crowding(runs, per_host)))
        inside += sum(check.inside for check in checks)
        rounds += sum(check.rounds for check in checks)
    assert rounds == 4 * 6 * 5 * 6
    assert inside / rounds >= 0.8


def test_a_band_is_wider_where_more_hosts_slow_each_other_down():
    runs = made_up(hosts=(1, 2, 4), scenarios=("cold-start",))
    calm, crowded = (
        widening(validate(measure(slowed_by_crowding(runs, per_host))), "landline", "independent")
        for per_host in (0.0, 0.3)
    )
    assert crowded > 1.2 * calm


def test_with_few_rounds_a_band_is_told_of_few_hosts_only():
    assert has_enough_rounds(validate(measure(made_up())), "landline")
    assert not has_enough_rounds(validate(measure(made_up(rounds=5))), "landline")
    assert not has_enough_rounds([], "landline")


STORMS = storms_of(
    [
        {"storm": storm, "members": members, "seconds": seconds}
        for storm in ("zookeeper", "controller")
        for members, seconds in ((100, 0.1), (100, 0.3), (10_000, 20.0))
    ]
)


@pytest.mark.parametrize(("members", "seconds"), [(1, 0.002), (100, 0.2), (1_000, 2.0), (10_000, 20.0)])
def test_a_storm_is_known_between_its_measured_numbers_and_not_beyond(members, seconds):
    assert STORMS.stages[0].at(members) == pytest.approx(1000 * seconds)
    with pytest.raises(ValueError, match="10000 members, not 10001"):
        STORMS.at(10_001)


def test_storms_of_only_one_kind_are_none():
    assert storms_of([{"storm": "zookeeper", "members": 10, "seconds": 1.0}]).most == 0


def test_what_brokers_share_is_added_to_their_starts_and_to_no_others():
    found = study(made_up(), storms=STORMS)
    bare = study(made_up())
    for curve, before in zip(found.curves, bare.curves, strict=True):
        for point, other in zip(curve.points[:4], before.points[:4], strict=True):
            shared = STORMS.at(point.members) if curve.system == "landline" else 0
            assert point.shared_ms == pytest.approx(shared)
            assert point.low_ms == pytest.approx(other.low_ms + shared)
    assert found.reach == {"landline": 10_000, "spark": 40}


def test_a_study_goes_to_ten_thousand_hosts_and_prints_its_error():
    kept = io.StringIO()
    told = study(made_up(times={"landline": Times(own=900)}), storms=STORMS)
    print_study(Console(file=kept, width=120), told)
    assert told.curves[0].points[-1].members == 10_000
    assert "10,000" in kept.getvalue()
    assert f"{told.checks[0].error:+.0%}" in kept.getvalue()
    assert "It assumes" in kept.getvalue()


def test_without_a_cold_start_there_is_nothing_to_simulate_from():
    kept = io.StringIO()
    print_study(Console(file=kept), study([]))
    assert "nothing to simulate from" in kept.getvalue()
