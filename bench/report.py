"""Shows comparisons: a coloured table for the terminal, Markdown and JSON for docs/benchmarks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import Comparison, Sample, Spread, Verdict

COLOURS = {Verdict.AHEAD: "green", Verdict.TIE: "yellow", Verdict.BEHIND: "red"}
NOTES = """\
Figures are median (least to greatest) over the rounds. *Advantage* is how many times better Landline is, round by
round, whichever way is better for the figure; between 0.8 and 1.25 it is a tie. Both brokers run one at a time with
their default settings, single node, 3 partitions, 1 KiB records, acks=all; targets are interleaved and their order
is swapped each round, an unmeasured warm-up comes first, pages are touched before each run, and runs that neighbours
disturbed are repeated. Starting on an empty directory needs no ZooKeeper for Landline; Kafka's is already up.
"""


def table(comparisons: Sequence[Comparison], targets: Sequence[str]) -> Table:
    """The terminal's table."""
    shown = Table(title="Landline beside Apache Kafka", header_style="bold cyan", row_styles=("", "dim"))
    shown.add_column("figure", min_width=24)
    shown.add_column("unit")
    for target in targets:
        shown.add_column(target, justify="right")
    shown.add_column("advantage", justify="right")
    shown.add_column("goal", justify="right")
    for each in (each for each in comparisons if not each.metric.detail):
        cells = [_spread(each.spreads.get(target)) for target in targets]
        shown.add_row(each.metric.title, each.metric.unit, *cells, _coloured(each), _goal(each))
    return shown


def print_table(console: Console, comparisons: Sequence[Comparison], targets: Sequence[str]) -> None:
    """Prints the table."""
    console.print(table(comparisons, targets))


def markdown(
    comparisons: Sequence[Comparison], targets: Sequence[str], facts: Mapping[str, str], plot: str | None
) -> str:
    """The report as Markdown."""
    lines = ["# Landline beside Apache Kafka 3.9.1", "", NOTES]
    lines += [f"- {key}: {value}" for key, value in facts.items()]
    lines += ["", f"| figure | unit | {' | '.join(targets)} | advantage | verdict | goal |"]
    lines += [f"|---|---|{'---|' * len(targets)}---|---|---|"]
    for each in comparisons:
        cells = " | ".join(_spread(each.spreads.get(target)) for target in targets)
        verdict = each.verdict.value if each.verdict else ""
        advantage = _spread(each.advantage)
        lines.append(
            f"| {each.metric.title} | {each.metric.unit} | {cells} | {advantage} | {verdict} | {_plain_goal(each)} |"
        )
    if plot:
        lines += ["", f"![Advantage by figure]({plot})"]
    return "\n".join(lines) + "\n"


def write_json(
    path: Path, samples: Sequence[Sample], comparisons: Sequence[Comparison], facts: Mapping[str, str]
) -> None:
    """Writes every sample, so that others can do their own sums."""
    summary = [
        {
            "metric": each.metric.key,
            "unit": each.metric.unit,
            "spreads": {target: asdict(spread) for target, spread in each.spreads.items()},
            "advantage": asdict(each.advantage) if each.advantage else None,
            "verdict": each.verdict.value if each.verdict else None,
            "goal_met": each.goal_met,
        }
        for each in comparisons
    ]
    content = {"facts": dict(facts), "samples": [asdict(sample) for sample in samples], "summary": summary}
    path.write_text(json.dumps(content, indent=1) + "\n")


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


def _coloured(each: Comparison) -> str:
    if each.verdict is None:
        return ""
    return f"[{COLOURS[each.verdict]}]{_spread(each.advantage)} {each.verdict.value}[/]"


def _plain_goal(each: Comparison) -> str:
    if each.goal_met is None:
        return ""
    sign = "met" if each.goal_met else "missed"
    return f"{sign} (under {each.metric.goal:g})"


def _goal(each: Comparison) -> str:
    colour = "green" if each.goal_met else "red"
    return f"[{colour}]{_plain_goal(each)}[/]" if each.goal_met is not None else ""
