"""Shows the result of a walk or a comparison: coloured tables for the terminal, Markdown and JSON for
the documentation.

The documentation's page is written by hand, except for the text between a pair of marks, which is replaced.
All figures that it shows are kept in the JSON file beside it.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from chaos.cluster import LANDLINE
from chaos.gaps import PRODUCTS, Row, Sample, goal_s
from chaos.history import ABORTED, COMMITTED, UNKNOWN
from chaos.reach import EVENTS
from chaos.rounds import Round
from chaos.walk import WalkResult

_MOST_FINDINGS = 20
TRANSACTIONS = {
    COMMITTED: "committed",
    ABORTED: "aborted",
    UNKNOWN: "with an end that their producer does not know",
}


@dataclass(frozen=True, slots=True)
class FaultRow:
    """All rounds of one fault, for all victims."""

    fault: str
    rounds: int
    median_s: float
    longest_gap_s: float
    longest_gap_of: str
    """The role in the round with the longest gap."""


def fault_rows(rounds: Iterable[Round]) -> list[FaultRow]:
    """By fault, in order of name."""
    by_fault: dict[str, list[Round]] = defaultdict(list)
    for each in rounds:
        by_fault[each.step.scenario.fault].append(each)
    return [
        _fault_row(fault, found) for fault, found in sorted(by_fault.items(), key=lambda row: row[0].lower())
    ]


def _fault_row(fault: str, rounds: Sequence[Round]) -> FaultRow:
    worst = max(rounds, key=lambda each: each.gap_s)
    seconds = statistics.median(each.seconds for each in rounds)
    return FaultRow(fault, len(rounds), seconds, worst.gap_s, str(worst.step.scenario.role))


def facts(result: WalkResult) -> dict[str, str]:
    """The general facts of the closing table."""
    totals = result.totals
    median = statistics.median(each.seconds for each in result.rounds) if result.rounds else 0.0
    return {
        "seed": str(result.seed),
        "rounds": f"{len(result.rounds)} in {totals.segments} segments",
        "time": f"{result.seconds / 60:.1f} min, median round {median:.1f} s",
        "records sent": f"{totals.sent:,}",
        "records acknowledged": f"{totals.acked:,}",
        "records given up by their producer": f"{totals.failed:,}",
        "records read": f"{totals.polled:,}",
        "transactions": ", ".join(
            f"{totals.transactions[outcome]:,} {told}" for outcome, told in TRANSACTIONS.items()
        ),
        "transactional producers fenced": f"{totals.fenced:,}",
        "clients that gave up and were replaced": str(len(totals.troubles)),
        "records that idempotent producers sent again in a new epoch": str(totals.resent),
        "commits that an older request of their client undid": str(totals.late_commits),
        "anomalies that unclean elections allow": str(totals.allowed),
        "what the faults reached": ", ".join(
            f"{totals.reached[what]:,} {what}" for what in EVENTS.values() if totals.reached[what]
        ),
        "anomalies": str(len(result.findings)),
    }


def walk_tables(result: WalkResult) -> Group:
    """The closing tables for the terminal."""
    colour = "red" if result.findings else "green"
    summary = Table(show_header=False, box=None)
    for name, value in facts(result).items():
        summary.add_row(f"[bold]{name}[/]", f"[{colour}]{value}[/]" if name == "anomalies" else value)
    return Group(_fault_table(result), summary)


def _fault_table(result: WalkResult) -> Table:
    shown = Table(title="Faults and the longest time without an acknowledgement", header_style="bold cyan")
    shown.add_column("fault", min_width=26)
    for column in ("rounds", "median s", "longest gap s"):
        shown.add_column(column, justify="right")
    shown.add_column("of")
    for row in fault_rows(result.rounds):
        shown.add_row(
            row.fault, str(row.rounds), f"{row.median_s:.1f}", f"{row.longest_gap_s:.1f}", row.longest_gap_of
        )
    return shown


def walk_markdown(result: WalkResult) -> str:
    """The section for the documentation."""
    lines = [f"- {name}: {value}" for name, value in facts(result).items()]
    lines += ["", "| fault | rounds | median round, s | longest gap, s | of |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.fault} | {row.rounds} | {row.median_s:.1f} | {row.longest_gap_s:.1f} | {row.longest_gap_of} |"
        for row in fault_rows(result.rounds)
    ]
    lines += ["", *(f"- **{finding}**" for finding in result.findings[:_MOST_FINDINGS])]
    if (more := len(result.findings) - _MOST_FINDINGS) > 0:
        lines.append(f"- and {more:,} more, all of them in `chaos/results`")
    return "\n".join(lines).rstrip() + "\n"


def walk_json(result: WalkResult) -> dict[str, Any]:
    """Every round, so that readers can do their own calculations."""
    return {
        "facts": facts(result),
        "findings": result.findings,
        "troubles": result.totals.troubles,
        "rounds": [
            {
                "number": each.step.number,
                "fault": each.step.scenario.fault,
                "role": str(each.step.scenario.role),
                "hold_s": each.step.hold_s,
                "rebalance": each.step.rebalance,
                "victims": list(each.victims),
                "seconds": round(each.seconds, 2),
                "gap_s": round(each.gap_s, 2),
                "finding": each.finding,
                "allowed": each.allowed,
            }
            for each in result.rounds
        ],
    }


def gaps_table(rows: Sequence[Row]) -> Table:
    """The comparison for the terminal."""
    names = [product.name for product in PRODUCTS]
    shown = Table(title="Longest time without an acknowledgement, s", header_style="bold cyan")
    shown.add_column("fault of leader and controller", min_width=16)
    for name in (*names, "goal"):
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(row.fault, *(_spread(row.spreads.get(name)) for name in names), _goal(row, colour=True))
    return shown


def gaps_markdown(rows: Sequence[Row], repetitions: int, machine: Mapping[str, str]) -> str:
    """The section for the documentation."""
    names = [product.name for product in PRODUCTS]
    lines = [f"- {key}: {value}" for key, value in machine.items()]
    lines += [f"- repetitions: {repetitions}; anomalies: {sum(row.anomalies for row in rows)}", ""]
    lines += [f"| fault | {' | '.join(names)} | goal |", f"|---|{'---|' * len(names)}---|"]
    lines += [
        f"| {row.fault} | {' | '.join(_spread(row.spreads.get(name)) for name in names)} | {_goal(row)} |"
        for row in rows
    ]
    return "\n".join([*lines, "", "Seconds: median (least to greatest)."]) + "\n"


def gaps_json(samples: Sequence[Sample], machine: Mapping[str, str]) -> dict[str, Any]:
    """Every sample."""
    return {"machine": dict(machine), "samples": [asdict(sample) for sample in samples]}


def _spread(spread: tuple[float, float, float] | None) -> str:
    if spread is None:
        return ""
    least, median, greatest = spread
    return f"{median:.2f} ({least:.2f} to {greatest:.2f})"


def _goal(row: Row, *, colour: bool = False) -> str:
    limit_s, ours = goal_s(row), row.spreads.get(LANDLINE.name)
    if limit_s is None or ours is None:
        return ""
    met = ours[1] < limit_s
    text = f"{'met' if met else 'missed'} (under {limit_s:.3g})"
    return f"[{'green' if met else 'red'}]{text}[/]" if colour else text


def publish(page: Path, data: Path, section: str, markdown: str, figures: Mapping[str, Any]) -> None:
    """Puts a section's text into the page, between its marks, and its figures into the JSON file ``data``."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    text = page.read_text() if page.exists() else ""
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n".lstrip()
    between = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    page.write_text(between.sub(lambda _: f"{begin}\n{markdown}{end}", text))
    known: dict[str, Any] = json.loads(data.read_text()) if data.exists() else {}
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text(json.dumps({**known, section: figures}, indent=1) + "\n")
