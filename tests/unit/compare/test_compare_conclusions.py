"""The report's sentences: a difference is told where the data show one, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from compare.figures import comparison_of
from compare.recorded import runs_of
from compare.report.answer import in_short
from compare.report.conclusions import of_all, of_system
from compare.report.missing import ALWAYS, not_measured
from compare.report.verdicts import Verdict, duels, judge
from compare.report.wording import duration, listed, percent, with_interval
from compare.simulation.storms import storms_of
from compare.simulation.study import study
from tests.support.comparison_samples import Sample, comparison, events, figure

NEARLY = [1000.0, 1010, 1015, 1025, 1030, 1040]
ALONE, PARALLEL, IN_TURN = "independent", "push-parallel", "push-sequential"


def a_figure(values):
    return comparison_of(a_comparison([a_group(values=values)])).groups[0].figures["all_ready_ms"]


def a_group(model=ALONE, values=None, scenario="cold-start", system="landline", hosts=4, **more):
    values = NEARLY if values is None else values
    name = "all_ready_ms" if scenario == "cold-start" else "recovered_ms"
    return {
        "system": system,
        "model": model,
        "scenario": scenario,
        "hosts": hosts,
        "rounds": len(values),
        "figures": {name: figure(values)},
        "person_acted": 0,
        "actions": {},
        **more,
    }


def a_comparison(groups, fits=()):
    return {"schema": 1, "comparison_id": "x", "runs": 1, "groups": groups, "steps": [], "fits": list(fits)}


def a_fit(model, slope, r2):
    return {
        "system": "landline",
        "model": model,
        "figure": "all_ready_ms",
        "scenario": "cold-start",
        "form": "a + b*hosts",
        "a_ms": 1.0,
        "b_ms": slope,
        "r2": r2,
        "n": 10,
    }


def told(groups, title, system="landline", fits=()):
    points = of_system(comparison_of(a_comparison(groups, fits)), system)
    return " ".join(point.text for point in points if point.title == title)


def later(by):
    return [value + by for value in NEARLY]


def test_a_clear_win_is_told_with_its_figures():
    text = told([a_group(), a_group(PARALLEL, later(1000))], "Cold start")
    assert text.startswith(
        "On 4 hosts, until all serve: 1.02 s (1.00 to 1.04) by itself; 2.02 s (2.00 to 2.04)"
    )
    assert "pushed in parallel, where by itself is 1.00 s (50 %) sooner" in text


def test_a_push_that_is_sooner_is_told_as_plainly():
    text = told([a_group(values=later(500)), a_group(IN_TURN)], "Cold start")
    assert "pushed in turn, where the push is 0.50 s (33 %) sooner" in text


def test_overlapping_intervals_are_no_difference():
    text = told([a_group(), a_group(PARALLEL, later(25))], "Cold start")
    assert "no difference shown: the intervals overlap" in text
    assert "sooner" not in text


def test_two_rounds_are_too_few_however_far_apart():
    text = told([a_group(values=[1.0, 2.0]), a_group(PARALLEL, [9000.0, 9001.0])], "Cold start")
    assert "too few rounds to tell a difference" in text
    assert "sooner" not in text


def test_what_was_measured_in_one_way_only_is_not_compared():
    assert told([a_group()], "Cold start") == "Measured only by itself, so nothing can be compared."
    assert told([a_group(scenario="crash")], "Cold start").startswith("Measured in no way")


def test_both_ways_are_compared_on_the_most_hosts_that_both_have():
    groups = [a_group(hosts=8), a_group(hosts=4), a_group(PARALLEL, later(900), hosts=4)]
    assert told(groups, "Cold start").startswith("On 4 hosts")


def test_who_never_gets_there_is_later_than_who_does():
    groups = [a_group(), a_group(PARALLEL, [None] * 6)]
    assert "never (in 6 rounds) pushed in parallel, only by itself gets there" in told(groups, "Cold start")


@pytest.mark.parametrize(
    ("alone", "pushed", "verdict"),
    [
        (NEARLY, later(100), Verdict.ALONE),
        (later(100), NEARLY, Verdict.PUSHED),
        (NEARLY, NEARLY, Verdict.LEVEL),
        (NEARLY, [*later(100), None], Verdict.ALONE),
        (NEARLY, [1.0, *[None] * 5], Verdict.ALONE),
        ([None] * 6, NEARLY, Verdict.PUSHED),
        ([None] * 6, [None] * 7, Verdict.LEVEL),
        ([*NEARLY[:5], None], NEARLY, Verdict.UNKNOWN),
        (NEARLY[:5], NEARLY, Verdict.UNKNOWN),
    ],
)
def test_verdicts(alone, pushed, verdict):
    assert judge(a_figure(alone), a_figure(pushed)) is verdict


def short(groups, title):
    return next(point.text for point in in_short(comparison_of(a_comparison(groups))) if point.title == title)


def waited(model, recovered, unaided, scenario="crash", acted=6, **more):
    figures = {"recovered_ms": figure(recovered), "unaided_ms": figure(unaided)}
    return a_group(model, scenario=scenario, figures=figures, rounds=6, person_acted=acted, **more)


def test_the_answer_counts_each_scenario_once_beside_the_quicker_push():
    groups = [
        a_group(),
        a_group(PARALLEL, later(1000)),
        a_group(IN_TURN, later(5)),
        a_group(scenario="crash", values=later(1000)),
        a_group(PARALLEL, scenario="crash"),
        a_group(scenario="reboot"),
        a_group(PARALLEL, scenario="reboot", values=later(400)),
        a_group(scenario="dead-host"),
        waited(PARALLEL, later(10_000), later(5), "dead-host"),
        a_group(scenario="slow-host"),
        a_group(PARALLEL, scenario="slow-host", values=[1.0]),
    ]
    assert short(groups, "Sooner?") == (
        "Of 5 comparisons of times with the quicker push, members that start by themselves were sooner in 1 "
        "(by 0.40 s), only because the push waited for a person in 1, pushed ones in 1 (by 1.00 s), no difference is "
        "shown in 1 and too little was recorded to tell of 1. How long the harness waited in a person's place is "
        "taken out."
    )


def test_the_answer_of_too_few_rounds_is_that_they_are_too_few():
    groups = [a_group(values=[1.0] * 5), a_group(PARALLEL, [9000.0] * 5)]
    assert short(groups, "Sooner?") == "Too little was recorded to tell: it takes 6 rounds at least."


@pytest.mark.parametrize(
    ("recovered", "unaided", "verdict"),
    [
        (later(10_000), later(3000), Verdict.ALONE),
        (later(10_000), later(5), Verdict.WAITED),
        (later(10_000), later(-500), Verdict.WAITED),
        (later(5), later(-5000), Verdict.LEVEL),  # at the soonest is no time that somebody saw
    ],
)
def test_the_wait_for_a_person_decides_nothing(recovered, unaided, verdict):
    (duel,) = duels(
        comparison_of(a_comparison([a_group(scenario="crash"), waited(PARALLEL, recovered, unaided)]))
    )
    assert duel.verdict is verdict


def test_a_wait_that_was_not_recorded_leaves_open_who_is_sooner():
    pushed = a_group(PARALLEL, scenario="crash", values=later(10_000), person_acted=6)
    (duel,) = duels(comparison_of(a_comparison([a_group(scenario="crash"), pushed])))
    assert duel.verdict is Verdict.UNKNOWN


def test_without_a_pair_the_answer_claims_nothing():
    assert short([], "Sooner?").startswith("Nothing was measured in both ways")
    assert short([], "Sturdier?") == "No fault was measured."


def test_the_answer_counts_persons_over_all_systems_and_faults():
    groups = [
        a_group(scenario="crash"),
        a_group(PARALLEL, scenario="crash", person_acted=4),
        a_group(PARALLEL, scenario="reboot", system="spark", person_acted=1),
        a_group(PARALLEL, person_acted=5),  # a cold start is no fault
    ]
    assert short(groups, "Sturdier?") == (
        "With a fault, a person had to act in 0 of 6 rounds by itself and 5 of 12 rounds pushed in parallel. "
        "Nothing but a person starts again what was pushed: that is the way itself more than a finding."
    )


def test_the_answer_says_once_what_is_the_same_for_both_systems():
    def made(model, commands, system):
        return a_group(
            model,
            system=system,
            figures={name: figure([commands] * 3) for name in ("commands", "connections")},
        )

    groups = [made(ALONE, 0, "landline"), made(ALONE, 0, "spark")]
    groups += [made(IN_TURN, 7, "landline"), made(IN_TURN, 1, "spark")]
    assert short(groups, "Simpler?") == (
        "For a cold start the launcher makes no commands and no connections by itself; 7 commands and 7 connections "
        "for Landline brokers and 1 command and 1 connection for Spark workers pushed in turn."
    )


def growing(*medians, counts=(1, 2, 4)):
    return [
        a_group(IN_TURN, [value + median - 1020 for value in NEARLY], hosts=hosts)
        for hosts, median in zip(counts, medians, strict=True)
    ]


def test_growth_is_told_as_a_line_where_the_line_meets_every_interval():
    line = {**a_fit(IN_TURN, 380.0, 0.98), "a_ms": 1000.0}
    assert told(growing(1380, 1765, 2520), "More hosts", fits=[line]) == (
        "From 1 to 4 hosts: pushed in turn each host more adds 0.38 s."
    )


def test_growth_that_bends_is_no_line_however_much_of_the_spread_one_would_explain():
    bent = {**a_fit(IN_TURN, 5060.0, 0.77), "a_ms": 2000.0}
    assert told(growing(4200, 16_800, 20_700), "More hosts", fits=[bent]) == (
        "From 1 to 4 hosts: pushed in turn 4.20 s, 16.8 s and 20.7 s on 1, 2 and 4 hosts, no line."
    )


def test_through_two_numbers_of_hosts_no_line_is_told():
    line = {**a_fit(IN_TURN, 380.0, 1.0), "a_ms": 1000.0}
    groups = growing(1380, 1760, counts=(1, 2))
    assert "no line" in told(groups, "More hosts", fits=[line])
    assert "not measured, only simulated" in told(groups[:1], "More hosts", fits=[line])


def test_persons_are_counted_by_fault_and_round():
    groups = [
        a_group(scenario="crash"),
        a_group(PARALLEL, scenario="crash", person_acted=4),
        a_group(PARALLEL, scenario="reboot"),
    ]
    assert told(groups, "A person") == (
        "Somebody had to act: by itself, with none of 1 fault; "
        "pushed in parallel, with 1 of 2 faults: a killed process (4 of 6 rounds)."
    )
    assert told([a_group()], "A person") == "No fault was measured."


def test_faults_are_sorted_by_what_they_show():
    groups = [
        a_group(scenario="slow-host"),
        a_group(PARALLEL, scenario="slow-host", values=later(1)),
        a_group(scenario="dead-host"),
        waited(PARALLEL, later(10_000), later(3000), "dead-host"),
        a_group(scenario="crash"),
        waited(PARALLEL, later(10_000), later(-500)),
        a_group(scenario="reboot"),
        waited(PARALLEL, later(10_000), later(1), "reboot"),
    ]
    assert told(groups, "With a fault") == (
        "Until the member that it hit serves again: by itself is sooner than pushed in parallel, however soon a person "
        "comes, with a host dead at the start; no difference is shown between by itself and pushed in parallel with a "
        "slow host; by itself is sooner than pushed in parallel only because a person was waited for with a killed "
        "process (level when one comes within 0.50 s) and a rebooted host."
    )


def test_a_scenario_without_recovery_is_judged_by_when_all_serve():
    groups = [
        a_group(
            model,
            scenario="host-added",
            rounds=6,
            figures={"recovered_ms": figure([None] * 6), "all_ready_ms": figure(times)},
        )
        for model, times in ((ALONE, [1.0, 2, 3, 4, 5, 6]), (PARALLEL, [7.0, 8, 9, 10, 11, 12]))
    ]
    (duel,) = duels(comparison_of(a_comparison(groups)))
    assert (duel.figure, duel.verdict) == ("all_ready_ms", Verdict.ALONE)


def the_model_or_program(spark_pushed):
    groups = [
        a_group(),
        a_group(PARALLEL, later(1000)),
        a_group(system="spark"),
        a_group(PARALLEL, spark_pushed, system="spark"),
    ]
    found = comparison_of(a_comparison(groups))
    return of_all(found, study([]))[0].text


def test_that_both_systems_agree_points_at_the_model():
    assert "same in 1 of 1 comparison: what is shown here goes with the model" in the_model_or_program(
        later(900)
    )


def test_that_the_systems_differ_points_at_the_program_too():
    assert "same in 0 of 1 comparison: where they differ, the program matters" in the_model_or_program(NEARLY)


def test_one_system_alone_cannot_tell_model_from_program():
    found = comparison_of(a_comparison([a_group(), a_group(PARALLEL)]))
    assert of_all(found, study([]))[0].text.startswith("Only one system was measured")


STORMS = storms_of(
    [
        {"storm": storm, "members": members, "seconds": seconds}
        for storm, took in (("zookeeper", (2.0, 6.0)), ("controller", (1.0, 9.0)))
        for members, seconds in zip((1000, 10_000), took, strict=True)
    ]
)


def simulated(storms, largest=10_000, rounds=6):
    made = events(Sample(rounds=rounds, scenarios=("cold-start",)))
    found = study(runs_of(made), largest, storms)
    return found, {point.title: point.text for point in of_all(comparison_of(comparison(made)), found)}


def test_a_sentence_about_many_hosts_names_zookeeper_and_the_controller_and_says_at_least():
    found, said = simulated(STORMS)
    text = said["Simulated: Landline brokers"]
    assert text.startswith(
        "10,000 Landline brokers would need, with 6.00 s for ZooKeeper's sessions and 9.00 s for the controller's word "
        "to each broker, at least: "
    )
    end = next(curve for curve in found.curves if curve.model == ALONE).points[-1]
    assert end.low_ms > 15_000
    assert f"{duration(end.low_ms)} to {duration(end.high_ms)} by itself" in text


@pytest.mark.parametrize("system", ["Landline brokers", "Spark workers"])
def test_without_a_storm_nothing_is_said_beyond_ten_times_the_hosts(system):
    text = simulated(None)[1][f"Simulated: {system}"]
    assert text.startswith(f"40 {system} would need, were ")
    assert "which nobody measured, at least:" in text


def test_without_enough_rounds_for_a_band_nothing_is_said_beyond_ten_times_the_hosts():
    assert simulated(STORMS, rounds=5)[0].reach == {"landline": 40, "spark": 40}


def test_the_simulation_is_told_with_its_greatest_error_and_how_far_that_was_seen():
    found, said = simulated(STORMS)
    worst = max(abs(check.error) for check in found.checks)
    inside, rounds = (sum(getattr(check, name) for check in found.checks) for name in ("inside", "rounds"))
    assert f"{inside} ({percent(inside / rounds)}) lie within their band" in said["Its error"]
    assert f"at most {100 * worst:.0f} % off" in said["Its error"]
    assert "All that is of at most 4 hosts" in said["Its error"]


def test_what_was_not_measured_names_the_holes_of_this_comparison():
    holes = not_measured(comparison_of(a_comparison([a_group(), a_group(PARALLEL, [1.0], scenario="crash")])))
    assert "Landline brokers: no cold start pushed in parallel and pushed in turn." in holes
    assert "Spark workers: no cold start." in holes
    assert (
        "With a killed process: not Landline brokers by itself and Landline brokers pushed in turn." in holes
    )
    assert any(text.startswith("Faults that were not made: a slow host,") for text in holes)
    assert any("1 group of 2 had fewer than 6 rounds" in text for text in holes)
    assert "Growth: only 4 hosts, in every cold start." in holes


def test_a_whole_comparison_leaves_no_holes_but_the_general_ones():
    everything = events(
        Sample(
            scenarios=(
                *("cold-start", "slow-host", "dead-host", "crash", "reboot", "ssh-refused", "host-added"),
                *("master-dead-before", "master-dead-during", "master-dead-after"),
            ),
        )
    )
    assert tuple(not_measured(comparison_of(comparison(everything)))) == ALWAYS


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (4, "4 ms"),
        (99.6, "0.10 s"),
        (872, "0.87 s"),
        (9_994, "9.99 s"),
        (9_996, "10.0 s"),
        (119_900, "119.9 s"),
        (130_200, "2 min 10 s"),
        (3_599_900, "1 h 00 min"),
        (3_978_300, "1 h 06 min"),
        (-1200, "-1.20 s"),
        (float("inf"), "never"),
    ],
)
def test_durations_read_well(milliseconds, text):
    assert duration(milliseconds) == text


def test_errors_read_well():
    assert [percent(share, "+") for share in (0.034, -0.034, -0.001, 0.001)] == ["+3 %", "-3 %", "0 %", "0 %"]


def test_intervals_and_lists_read_well():
    assert with_interval(a_figure([1000.0])) == "1.00 s"
    assert with_interval(a_figure([*[1000.0] * 6, None])) == "1.00 s (1.00 to 1.00), never in 1 of 7"
    assert with_interval(a_figure([60.0, *[80.0] * 4, 300.0])) == "80 ms (60 ms to 0.30 s)"
    assert with_interval(SimpleNamespace(median=None, rounds=0)) == "not measured"
    assert [listed(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
