"""The conclusion in sentences, chosen and filled by the data. Pure: the same data, the same sentences.

A sentence claims a difference only where :mod:`compare.report.verdicts` sees one; overlapping intervals, few rounds and
what was not measured have wordings of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from compare.figures import Comparison, Fit, Group
from compare.recorded import MODELS
from compare.report.answer import Point, launcher_s_part
from compare.report.verdicts import COLD_START, PUSHES, Duel, Verdict, duels
from compare.report.wording import (
    SYSTEMS,
    counted,
    duration,
    listed,
    scenario,
    simulated_way,
    way,
    with_interval,
)
from compare.simulation.study import Study

WELL_FITTED = 0.5
"""The share of the spread that a line must explain before its slope is told."""


def of_system(comparison: Comparison, system: str) -> list[Point]:
    """What was found of one system."""
    own = [duel for duel in duels(comparison) if duel.system == system]
    cold = [duel for duel in own if duel.scenario == COLD_START]
    faults = [duel for duel in own if duel.scenario != COLD_START]
    points = [
        Point("Cold start", _cold_start(comparison, system, cold)),
        Point("More hosts", _growth(comparison, system)),
        Point("A person", _persons(comparison, system)),
        *(Point("With a fault", _recovery(push, faults)) for push in PUSHES),
        Point("Effort", _effort(comparison, system)),
    ]
    return [point for point in points if point.text]


def of_all(comparison: Comparison, study: Study) -> list[Point]:
    """What was found of the systems together, and what the simulation adds."""
    simulated = [Point("Simulated", text) for text in _simulated(study)]
    points = [Point("Model or program", _model_or_program(comparison)), *simulated]
    return [point for point in points if point.text]


def _cold_start(comparison: Comparison, system: str, cold: Sequence[Duel]) -> str:
    if not cold:
        ways = [way(model) for model in MODELS if comparison.find(system, model, COLD_START)]
        return f"Measured {f'only {listed(ways)}' if ways else 'in no way'}, so nothing can be compared."
    first = cold[0]
    alone = f"{with_interval(first.alone)} by itself"
    return f"On {counted(first.hosts, 'host')}, until all serve: {alone}; {'; '.join(map(_against, cold))}."


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
    return f"{beside}, where {sooner} is {duration(apart)} ({share:.0%}) sooner"


def _growth(comparison: Comparison, system: str) -> str:
    cold = [group for group in comparison.groups if (group.system, group.scenario) == (system, COLD_START)]
    counts = {group.hosts for group in cold}
    fits = [fit for model in MODELS for fit in comparison.fits if _is_of(fit, system, model)]
    if len(counts) < 2 or not fits:
        return "How the time grows with the number of hosts was not measured, only simulated."
    clear = [f"{duration(fit.b_ms)} {_fitted(fit)}" for fit in fits if fit.r2 >= WELL_FITTED]
    unclear = [_fitted(fit) for fit in fits if fit.r2 < WELL_FITTED]
    parts = [f"each host more adds {listed(clear)}"] if clear else []
    parts += [f"no clear growth is shown {listed(unclear)}"] if unclear else []
    return f"From {min(counts)} to {max(counts)} hosts, {'; '.join(parts)}."


def _fitted(fit: Fit) -> str:
    return f"{way(fit.model)} (r² {fit.r2:.2f})"


def _persons(comparison: Comparison, system: str) -> str:
    faults = [group for group in comparison.groups if group.system == system and group.scenario != COLD_START]
    if not faults:
        return "No fault was measured."
    own = {model: [group for group in faults if group.model == model] for model in MODELS}
    parts = [f"{way(model)}, {_needing(groups)}" for model, groups in own.items() if groups]
    return f"Somebody had to act: {'; '.join(parts)}."


def _needing(groups: Sequence[Group]) -> str:
    needing = [group for group in groups if group.person_acted]
    if not needing:
        return f"with none of {counted(len(groups), 'fault')}"
    names = [
        f"{scenario(group.scenario)} ({group.person_acted} of {counted(group.rounds, 'round')})"
        for group in needing
    ]
    return f"with {len(needing)} of {counted(len(groups), 'fault')}, {listed(names)}"


def _recovery(push: str, faults: Sequence[Duel]) -> str:
    own = [duel for duel in faults if duel.push == push]
    wordings = (
        (Verdict.ALONE, "they are sooner by themselves with"),
        (Verdict.PUSHED, f"they are sooner {way(push)} with"),
        (Verdict.LEVEL, "no difference is shown with"),
        (Verdict.UNKNOWN, "too few rounds were made with"),
    )
    parts = [
        f"{words} {listed(names)}"
        for verdict, words in wordings
        if (names := [scenario(duel.scenario) for duel in own if duel.verdict is verdict])
    ]
    return f"By itself beside {way(push)}: {'; '.join(parts)}." if parts else ""


def _effort(comparison: Comparison, system: str) -> str:
    parts = []
    for model in MODELS:
        group = comparison.find(system, model, COLD_START)
        if group and (made := launcher_s_part(group)):
            cpu = group.median("cpu_ms")
            busy = "" if cpu is None else f" and the hosts' processors take {duration(cpu)}"
            parts.append(f"{way(model)} the launcher makes {made}{busy} ({counted(group.hosts, 'host')})")
    return f"For a cold start, {'; '.join(parts)}." if parts else ""


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


def _simulated(study: Study) -> list[str]:
    if not study.curves:
        return ["Nothing could be simulated: no cold start was measured in which all served."]
    told = [_grown(study, system) for system in dict.fromkeys(curve.system for curve in study.curves)]
    if not study.checks:
        return [*told, "Too few rounds were made to hold the simulation against."]
    worst = max(study.checks, key=lambda check: abs(check.error))
    start = f"{SYSTEMS.get(worst.system, worst.system)} {way(worst.model)} on {counted(worst.hosts, 'host')}"
    trust = f"Beside measured starts its median is at most {abs(worst.error):.0%} off ({start})."
    return [*told, trust]


def _grown(study: Study, system: str) -> str:
    parts = [
        f"{duration(curve.points[-1].median_ms)} {simulated_way(curve.model, curve.lanes)}"
        for curve in study.curves
        if curve.system == system
    ]
    return f"{study.largest:,} {SYSTEMS.get(system, system)} would all serve after {listed(parts)}."


def _is_of(fit: Fit, system: str, model: str) -> bool:
    return (fit.system, fit.model, fit.figure, fit.scenario) == (system, model, "all_ready_ms", COLD_START)
