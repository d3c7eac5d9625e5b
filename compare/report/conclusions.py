"""The conclusion in sentences, chosen and filled by the data. Pure: the same data, the same sentences.

A sentence claims a difference only where :mod:`compare.report.verdicts` sees one; overlapping intervals, few rounds and
what was not measured have wordings of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compare.figures import Comparison, Fit, Group
from compare.recorded import MODELS
from compare.report.answer import Point, launcher_s_part
from compare.report.verdicts import COLD_START, PUSHES, Duel, Verdict, duels
from compare.report.wording import (
    SYSTEMS,
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
from compare.simulation.study import Study

WELL_FITTED = 0.5
"""The share of the spread that a line must explain before its slope is told."""
_WORDINGS = {
    Verdict.ALONE: "by itself is sooner than {}",
    Verdict.PUSHED: "{} is sooner than by itself",
    Verdict.LEVEL: "no difference is shown between by itself and {}",
    Verdict.UNKNOWN: "too few rounds were made to tell by itself from {}",
}


def of_system(comparison: Comparison, system: str) -> list[Point]:
    """What was found of one system."""
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
    """What was found of the systems together, and what the simulation adds."""
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
    sooner = "by itself" if verdict is Verdict.ALONE else "the push"
    if duel.alone.median is None or duel.pushed.median is None:
        return f"{beside}, only {sooner} gets there"
    apart = abs(duel.pushed.median - duel.alone.median)
    share = apart / max(duel.pushed.median, duel.alone.median)
    return f"{beside}, where {sooner} is {duration(apart)} ({percent(share)}) sooner"


def _growth(comparison: Comparison, system: str) -> Point:
    title = "More hosts"
    cold = [group for group in comparison.groups if (group.system, group.scenario) == (system, COLD_START)]
    counts = {group.hosts for group in cold}
    fits = [fit for model in MODELS for fit in comparison.fits if _is_of(fit, system, model)]
    if len(counts) < 2 or not fits:
        return Point(title, "How the time grows with the number of hosts was not measured, only simulated.")
    clear = [f"{duration(fit.b_ms)} {_fitted(fit)}" for fit in fits if fit.r2 >= WELL_FITTED]
    unclear = [_fitted(fit) for fit in fits if fit.r2 < WELL_FITTED]
    parts = [f"each host more adds {listed(clear)}"] if clear else []
    parts += [f"no clear growth is shown {listed(unclear)}"] if unclear else []
    return Point(title, f"From {min(counts)} to {max(counts)} hosts:", tuple(parts))


def _fitted(fit: Fit) -> str:
    return f"{way(fit.model)} (r² {fit.r2:.2f})"


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


def _recovery(faults: Sequence[Duel]) -> list[str]:
    return [
        f"{words.format(way(push))} with {listed(names)}"
        for push in PUSHES
        for verdict, words in _WORDINGS.items()
        if (
            names := [
                scenario(duel.scenario) for duel in faults if (duel.push, duel.verdict) == (push, verdict)
            ]
        )
    ]


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
    parts = (
        f"{duration(curve.points[-1].median_ms)} {simulated_way(curve.model, curve.lanes)}"
        for curve in study.curves
        if curve.system == system
    )
    return Point(
        "Simulated", f"{study.largest:,} {SYSTEMS.get(system, system)} would all serve after", tuple(parts)
    )


def _error(study: Study) -> str:
    if not study.checks:
        return "Too few rounds were made to hold the simulation against."
    worst = max(study.checks, key=lambda check: abs(check.error))
    start = f"{SYSTEMS.get(worst.system, worst.system)} {way(worst.model)} on {counted(worst.hosts, 'host')}"
    return f"Beside measured starts the simulation's median is at most {percent(abs(worst.error))} off ({start})."


def _is_of(fit: Fit, system: str, model: str) -> bool:
    return (fit.system, fit.model, fit.figure, fit.scenario) == (system, model, "all_ready_ms", COLD_START)
