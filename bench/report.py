"""Shows comparisons: coloured tables for the terminal, Markdown and JSON for docs/benchmarks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import Better, Comparison, Failure, Goal, GoalState, Sample, Spread, Verdict

COLOURS = {Verdict.AHEAD: "green", Verdict.TIE: "yellow", Verdict.BEHIND: "red"}
GOAL_COLOURS = {GoalState.MET: "green", GoalState.LEVEL: "yellow", GoalState.MISSED: "red"}
NOTES = """\
Figures are median (least to greatest) over the rounds. *Ahead of* a target is how many times better Landline is,
round by round, whichever way is better for the figure; between 0.8 and 1.25 it is a tie. All run one at a time with
their default settings; how they are kept alike is in `docs/benchmarks/README.md`.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A suite's comparisons under its title."""

    title: str
    note: str
    comparisons: Sequence[Comparison]


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report. ``targets``: Landline first, then the others."""

    sections: Sequence[Section]
    targets: Sequence[str]
    facts: Mapping[str, str]
    failures: Sequence[Failure]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The total time of each workload."""

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparisons of all sections."""
        return [each for section in self.sections for each in section.comparisons]

    @property
    def others(self) -> Sequence[str]:
        """All targets but Landline."""
        return self.targets[1:]


def print_tables(console: Console, report: Report) -> None:
    """Prints a table for each suite, and the failures."""
    for section in report.sections:
        console.print(_table(section, report))
    for failure in report.failures:
        console.print(f"[red]failed[/]: {_failure(failure)}", highlight=False)


def markdown(report: Report, plot: str | None) -> str:
    """The report as Markdown."""
    lines = ["# Landline beside Apache Kafka", "", NOTES]
    lines += [f"- {key}: {value}" for key, value in report.facts.items()]
    if plot:
        lines += ["", f"![How many times better, by figure]({plot})"]
    lines += _goals(report)
    for section in report.sections:
        lines += _section(section, report)
    lines += _details(report)
    if report.failures:
        lines += ["", "## What failed", "", *[f"- {_failure(failure)}" for failure in report.failures]]
    return "\n".join(lines) + "\n"


def write_json(path: Path, report: Report, samples: Sequence[Sample]) -> None:
    """Writes every sample, so that readers can do their own calculations."""
    summary = [
        {
            "suite": section.title,
            "metric": each.metric.key,
            "title": each.metric.title,
            "unit": each.metric.unit,
            "better": each.metric.better.value,
            "spreads": {target: asdict(spread) for target, spread in each.spreads.items()},
            "advantages": {target: asdict(spread) for target, spread in each.advantages.items()},
            "verdict": each.verdict.value if each.verdict else None,
            "goal": asdict(each.metric.goal) if each.metric.goal else None,
            "goal_state": each.goal.value if each.goal else None,
        }
        for section in report.sections
        for each in section.comparisons
    ]
    content = {
        "facts": dict(report.facts),
        "summary": summary,
        "seconds": {title: round(seconds, 1) for title, seconds in report.seconds.items()},
        "failures": [asdict(failure) for failure in report.failures],
        "samples": [asdict(sample) for sample in samples],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def goal_text(goal: Goal, better: Better) -> str:
    """The goal in a few words."""
    parts = []
    if goal.value is not None:
        parts.append(f"{'at most' if better is Better.LOWER else 'at least'} {goal.value:g}")
    if goal.times is not None:
        parts.append("not behind" if goal.times == 1 else f"{goal.times:.3g} times better")
    return ", ".join(parts)


def _table(section: Section, report: Report) -> Table:
    shown = Table(title=section.title, header_style="bold cyan", row_styles=("", "dim"))
    shown.add_column("figure", min_width=24)
    shown.add_column("unit")
    for name in [*report.targets, *[f"ahead of {other}" for other in report.others], "goal"]:
        shown.add_column(name, justify="right")
    for each in (each for each in section.comparisons if not each.metric.detail):
        cells = [_cell(each, target, report) for target in report.targets]
        ahead = [_coloured(each, other) for other in report.others]
        shown.add_row(each.metric.title, each.metric.unit, *cells, *ahead, _goal_cell(each, coloured=True))
    return shown


def _goals(report: Report) -> list[str]:
    judged = [each for each in report.comparisons if each.goal is not None]
    if not judged:
        return []
    first = report.others[0] if report.others else ""
    lines = [
        "",
        "## The goals",
        "",
        f"| figure | asked for | measured | ahead of {first} | |",
        "|---|---|---|---|---|",
    ]
    for each in judged:
        assert each.metric.goal is not None
        assert each.goal is not None
        asked = goal_text(each.metric.goal, each.metric.better)
        measured = f"{_spread(each.spreads.get(report.targets[0]))} {each.metric.unit}"
        state = each.goal.value if each.goal is not GoalState.MISSED else f"**{each.goal.value}**"
        lines.append(
            f"| {each.metric.title} | {asked} | {measured} | {_spread(each.advantages.get(first))} | {state} |"
        )
    return lines


def _section(section: Section, report: Report) -> list[str]:
    lines = ["", f"## {section.title}", ""]
    if section.note:
        lines += [section.note, ""]
    return [*lines, *_rows([each for each in section.comparisons if not each.metric.detail], report)]


def _details(report: Report) -> list[str]:
    details = [each for each in report.comparisons if each.metric.detail]
    if not details:
        return []
    return [
        "",
        "## Details",
        "",
        "User and system CPU apart, the far percentiles, and what was measured beside.",
        "",
        *_rows(details, report),
    ]


def _rows(comparisons: Sequence[Comparison], report: Report) -> list[str]:
    heads = [*report.targets, *[f"ahead of {other}" for other in report.others]]
    lines = [f"| figure | unit | {' | '.join(heads)} | |", "|---" * (len(heads) + 3) + "|"]
    for each in comparisons:
        cells = [_cell(each, target, report) for target in report.targets]
        cells += [_spread(each.advantages.get(other)) for other in report.others]
        verdict = each.verdict.value if each.verdict else ""
        lines.append(f"| {each.metric.title} | {each.metric.unit} | {' | '.join(cells)} | {verdict} |")
    return lines


def _cell(each: Comparison, target: str, report: Report) -> str:
    if spread := each.spreads.get(target):
        return _spread(spread)
    failed = any(
        failure.target == target and each.metric.key in failure.metrics for failure in report.failures
    )
    return "failed" if failed else ""


def _failure(failure: Failure) -> str:
    return f"{failure.workload}, {failure.target}, round {failure.round_number + 1}: {failure.reason}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    if spread.count == 1:
        return _number(spread.median)
    return f"{_number(spread.median)} ({_number(spread.least)} to {_number(spread.greatest)})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _coloured(each: Comparison, other: str) -> str:
    if other not in each.advantages or each.verdict is None:
        return _spread(each.advantages.get(other))
    return f"[{COLOURS[each.verdict]}]{_spread(each.advantages[other])}[/]"


def _goal_cell(each: Comparison, *, coloured: bool) -> str:
    if each.goal is None or each.metric.goal is None:
        return ""
    text = f"{each.goal.value}: {goal_text(each.metric.goal, each.metric.better)}"
    return f"[{GOAL_COLOURS[each.goal]}]{text}[/]" if coloured else text
