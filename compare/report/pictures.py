"""Draws all pictures of a report, with text alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from compare.figures import Comparison
from compare.recorded import Run
from compare.report.charts import faults, gantt, growth, spread
from compare.report.charts.style import Picture, picture
from compare.report.selection import Timeline, shown_and_others, timeline
from compare.report.verdicts import COLD_START
from compare.report.wording import (
    SYSTEMS,
    band,
    capital,
    counted,
    duration,
    scenario,
    scenario_order,
    simulated_way,
    way,
)
from compare.simulation.study import Study


@dataclass(frozen=True, slots=True)
class Shown:
    """A timeline's picture with its caption."""

    system: str
    picture: Picture
    caption: str


@dataclass(frozen=True, slots=True)
class Folded:
    """Timelines that are shown on request."""

    title: str
    timelines: tuple[Shown, ...]


def timelines(runs: Sequence[Run], directory: Path) -> tuple[list[Shown], list[Folded]]:
    """The median cold start of each system and model; folded: those on fewer hosts, and each fault's
    median round.
    """
    chosen, others = shown_and_others(runs, COLD_START)
    folded = [
        _folded(f"{_system(system)}: {counted(len(rounds), 'cold start')} on fewer hosts", rounds)
        for system, found in groupby(others, key=lambda run: run.system)
        if (rounds := list(found))
    ]
    for name in sorted({run.scenario for run in runs} - {COLD_START}, key=scenario_order):
        shown, _ = shown_and_others(runs, name)
        folded.append(_folded(f"With {scenario(name)}: the median round of each way", shown))
    return _shown(chosen, directory), folded


def draw_all(comparison: Comparison, study: Study, outage_s: float, directory: Path) -> dict[str, Picture]:
    """The other pictures, by name; ``outage_s`` is from the manifest. A picture without data is absent."""
    pictures = {
        "cold_starts": picture(
            "cold-starts",
            _spread_alt(comparison),
            partial(spread.draw_cold_starts, comparison),
            directory,
        ),
        "measured": picture(
            "growth-measured",
            "Time until all serve by number of hosts: every round a mark, and a line where it is one.",
            partial(growth.draw_measured, comparison),
            directory,
        ),
    }
    if any(group.scenario != COLD_START for group in comparison.groups):
        alt = (
            "Times from a fault until it is over, a bar for each fault and way. The tables have the figures."
        )
        pictures["faults"] = picture(
            "faults", alt, partial(faults.draw_faults, comparison, outage_s), directory
        )
    if study.curves:
        draw = partial(growth.draw_simulated, comparison, study)
        pictures["simulated"] = picture("growth-simulated", _growth_alt(study), draw, directory)
    return pictures


def _folded(title: str, runs: Sequence[Run]) -> Folded:
    return Folded(title, tuple(_shown(runs, None)))


def _shown(runs: Sequence[Run], directory: Path | None) -> list[Shown]:
    """All timelines of one system have the same right end, so that they can be compared by eye."""
    lines = [timeline(run) for run in runs]
    found = []
    for each in lines:
        until = max(other.end_ms for other in lines if other.run.system == each.run.system)
        name = f"start-{each.run.system}-{each.run.model}"
        shown = picture(name, _alt(each), partial(gantt.draw, each, until_ms=until), directory)
        found.append(Shown(each.run.system, shown, _caption(each)))
    return found


def _caption(shown: Timeline) -> str:
    run = shown.run
    ready = (
        f"all serve after {duration(run.all_ready_us / 1000)}"
        if run.all_ready_us is not None
        else "not all serve"
    )
    text = f"{capital(way(run.model))}, {counted(run.hosts, 'host')}, round {run.round}: {ready}"
    text += "; a person had to act" if run.person_acted else ""
    return text + (f"; {counted(shown.left_out, 'more process')} not drawn" if shown.left_out else "") + "."


def _alt(shown: Timeline) -> str:
    ready = [
        f"{line.process} serves after {duration(line.ready_ms[-1])}" for line in shown.lines if line.ready_ms
    ]
    run = shown.run
    return f"Timeline of a start, {_system(run.system)} {way(run.model)}, {scenario(run.scenario)}: {'; '.join(ready)}."


def _spread_alt(comparison: Comparison) -> str:
    medians = [
        f"{_system(group.system)} {way(group.model)} on {counted(group.hosts, 'host')} {duration(median)}"
        for group in comparison.groups
        if group.scenario == COLD_START and (median := group.median("all_ready_ms")) is not None
    ]
    return f"Times until all serve, every round a point; medians: {'; '.join(medians)}."


def _growth_alt(study: Study) -> str:
    ends = [
        f"{curve.points[-1].members:,} {_system(curve.system)} {simulated_way(curve.model, curve.lanes)} "
        f"{band(curve.points[-1])}"
        for curve in study.curves
    ]
    return f"Simulated time until all serve by number of members, at least: {'; '.join(ends)}."


def _system(name: str) -> str:
    return SYSTEMS.get(name, name)
