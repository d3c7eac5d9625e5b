"""The conclusions as sentences, chosen and filled by the data. Pure: the same data give the same sentences.

A sentence claims a difference only if :mod:`compare.report.verdicts` finds one. Overlapping intervals, too
few rounds and missing measurements have their own wordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compare.figures import Comparison, Group
from compare.recorded import MODELS
from compare.report.answer import Point, launcher_s_part
from compare.report.lines import cold_groups, line_of
from compare.report.verdicts import COLD_START, PUSHES, Duel, Verdict, duels
from compare.report.wording import (
    SYSTEMS,
    band,
    counted,
    duration,
    listed,
    percent,
    scenario,
    scenario_order,
    simulated_way,
    way,
    with_interval,
)
from compare.simulation.storms import STAGES
from compare.simulation.study import STORMED, Study

_WORDINGS = {
    Verdict.ALONE: "by itself is sooner than {}, however soon a person comes,",
    Verdict.PUSHED: "{} is sooner than by itself",
    Verdict.LEVEL: "no difference is shown between by itself and {}",
    Verdict.UNKNOWN: "too few rounds were made to tell by itself from {}",
}


def of_system(comparison: Comparison, system: str) -> list[Point]:
    """The findings about one system."""
    own = [duel for duel in duels(comparison) if duel.system == system]
    cold = [duel for duel in own if duel.scenario == COLD_START]
    faults = [duel for duel in own if duel.scenario != COLD_START]
    points = [
        _cold_start(comparison, system, cold),
        _growth(comparison, system),
        _persons(comparison, system),
        Point("With a fault", "Until the member that it hit serves again:", tuple(_recovery(faults))),
        Point("Effort", "For a cold start:", tuple(_effort(comparison, system))),
    ]
    return [point for point in points if point.parts or not point.lead.endswith(":")]


def of_all(comparison: Comparison, study: Study) -> list[Point]:
    """The findings about the systems together, and those of the simulation."""
    return [Point("Model or program", _model_or_program(comparison)), *_simulated(study)]


def _cold_start(comparison: Comparison, system: str, cold: Sequence[Duel]) -> Point:
    title = "Cold start"
    if not cold:
        ways = [way(model) for model in MODELS if comparison.find(system, model, COLD_START)]
        found = f"Measured {f'only {listed(ways)}' if ways else 'in no way'}, so nothing can be compared."
        return Point(title, found)
    alone = f"{with_interval(cold[0].alone)} by itself"
    lead = f"On {counted(cold[0].hosts, 'host')}, until all serve:"
    return Point(title, lead, (alone, *map(_against, cold)))


def _against(duel: Duel) -> str:
    beside = f"{with_interval(duel.pushed)} {way(duel.push)}"
    verdict = duel.verdict
    if verdict is Verdict.LEVEL:
        return f"{beside}, no difference shown: the intervals overlap"
    if verdict is Verdict.UNKNOWN:
        return f"{beside}, too few rounds to tell a difference"
    if verdict is Verdict.WAITED:
        return f"{beside}, later only because a person was waited for"
    sooner = "by itself" if verdict is Verdict.ALONE else "the push"
    if duel.alone.median is None or duel.pushed.median is None:
        return f"{beside}, only {sooner} gets there"
    apart = abs(duel.pushed.median - duel.alone.median)
    share = apart / max(duel.pushed.median, duel.alone.median)
    return f"{beside}, where {sooner} is {duration(apart)} ({percent(share)}) sooner"


def _growth(comparison: Comparison, system: str) -> Point:
    title = "More hosts"
    own = {model: groups for model in MODELS if len(groups := cold_groups(comparison, system, model)) > 1}
    if not own:
        return Point(title, "How the time grows with the number of hosts was not measured, only simulated.")
    counts = sorted({group.hosts for groups in own.values() for group in groups})
    parts = []
    for model, groups in own.items():
        if line := line_of(comparison, system, model):
            parts.append(f"{way(model)} each host more adds {duration(line.b_ms)}")
        else:
            medians = [group.median("all_ready_ms") for group in groups]
            times = listed(["never" if median is None else duration(median) for median in medians])
            parts.append(
                f"{way(model)} {times} on {listed([str(group.hosts) for group in groups])} hosts, no line"
            )
    return Point(title, f"From {counts[0]} to {counts[-1]} hosts:", tuple(parts))


def _persons(comparison: Comparison, system: str) -> Point:
    title = "A person"
    faults = [group for group in comparison.groups if group.system == system and group.scenario != COLD_START]
    if not faults:
        return Point(title, "No fault was measured.")
    own = {model: [group for group in faults if group.model == model] for model in MODELS}
    parts = (f"{way(model)}, {_needing(groups)}" for model, groups in own.items() if groups)
    return Point(title, "Somebody had to act:", tuple(parts))


def _needing(groups: Sequence[Group]) -> str:
    needing = sorted(
        (group for group in groups if group.person_acted), key=lambda group: scenario_order(group.scenario)
    )
    if not needing:
        return f"with none of {counted(len(groups), 'fault')}"
    names = [
        scenario(group.scenario)
        + ("" if group.person_acted == group.rounds else f" ({group.person_acted} of {group.rounds} rounds)")
        for group in needing
    ]
    return f"with {len(needing)} of {counted(len(groups), 'fault')}: {listed(names)}"


def _recovery(faults: Sequence[Duel]) -> Iterator[str]:
    for push in PUSHES:
        own = [duel for duel in faults if duel.push == push]
        for verdict, words in _WORDINGS.items():
            if names := [scenario(duel.scenario) for duel in own if duel.verdict is verdict]:
                yield f"{words.format(way(push))} with {listed(names)}"
        if waited := [duel for duel in own if duel.verdict is Verdict.WAITED]:
            yield (
                f"by itself is sooner than {way(push)} only because a person was waited for with "
                f"{listed([_break_even(duel) for duel in waited])}"
            )


def _break_even(duel: Duel) -> str:
    """The patience at which both ways would take the same time."""
    apart = duel.apart_ms
    name = scenario(duel.scenario)
    return name if apart is None or apart >= 0 else f"{name} (level when one comes within {duration(-apart)})"


def _effort(comparison: Comparison, system: str) -> Iterator[str]:
    for model in MODELS:
        group = comparison.find(system, model, COLD_START)
        if group and (made := launcher_s_part(group)):
            cpu = group.median("cpu_ms")
            busy = "" if cpu is None else f"; the hosts' processors are busy for {duration(cpu)}"
            yield f"{way(model)} ({counted(group.hosts, 'host')}) the launcher makes {made}{busy}"


def _model_or_program(comparison: Comparison) -> str:
    if len(comparison.systems) < 2:
        return "Only one system was measured: what the model does and what the program does cannot be told apart."
    verdicts: dict[tuple[str, str], dict[str, Verdict]] = {}
    for duel in duels(comparison):
        if duel.verdict is not Verdict.UNKNOWN:
            verdicts.setdefault((duel.scenario, duel.push), {})[duel.system] = duel.verdict
    shared = [found for found in verdicts.values() if len(found) == len(comparison.systems)]
    if not shared:
        return "No comparison was made with both systems: model and program cannot be told apart."
    agree = sum(len(set(found.values())) == 1 for found in shared)
    end = (
        "what is shown here goes with the model, not with the program"
        if agree == len(shared)
        else "where they differ, the program matters beside the model"
    )
    return f"Both systems show the same in {agree} of {counted(len(shared), 'comparison')}: {end}."


def _simulated(study: Study) -> list[Point]:
    if not study.curves:
        return [Point("Simulated", "Nothing: no cold start was measured in which all served.")]
    grown = [_grown(study, system) for system in dict.fromkeys(curve.system for curve in study.curves)]
    return [*grown, Point("Its error", _error(study))]


def _grown(study: Study, system: str) -> Point:
    """A band, never a single figure, and the part of it that members share."""
    ends = [curve for curve in study.curves if curve.system == system]
    parts = (f"{band(curve.points[-1])} {simulated_way(curve.model, curve.lanes)}" for curve in ends)
    members = study.reach[system]
    lead = (
        f"{members:,} {SYSTEMS.get(system, system)} would need, {_shared(study, system, members)}, at least:"
    )
    return Point(f"Simulated: {SYSTEMS.get(system, system)}", lead, tuple(parts))


def _shared(study: Study, system: str, members: int) -> str:
    if system == STORMED and members <= study.storms.most:
        stages = [f"{duration(stage.at(members))} for {STAGES[stage.name]}" for stage in study.storms.stages]
        return f"with {listed(stages)}"
    unknown = "ZooKeeper and the controller" if system == STORMED else "Spark's master"
    return f"were {unknown} as quick as with the few measured, which nobody measured"


def _error(study: Study) -> str:
    if not study.checks:
        return "Too few rounds were made to hold the simulation against."
    worst = max(study.checks, key=lambda check: abs(check.error))
    start = f"{SYSTEMS.get(worst.system, worst.system)} {way(worst.model)} on {counted(worst.hosts, 'host')}"
    inside, rounds = (sum(getattr(check, name) for check in study.checks) for name in ("inside", "rounds"))
    most = max(check.hosts for check in study.checks)
    return (
        f"Of {rounds} predictions of a round left out, from other rounds and from fewer hosts, {inside} "
        f"({percent(inside / rounds)}) lie within their band; the median was at most {percent(abs(worst.error))} off "
        f"({start}). All that is of at most {counted(most, 'host')}: of more nothing is known but what is told above."
    )
