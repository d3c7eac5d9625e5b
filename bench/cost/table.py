"""The committed table, the comparison with it, and its output. Pure, except for reading and writing the file.

A figure is too high when it is more than twice the table's value and a floor; the CPU time, two and a half times.
There are three figures per element: CPU time, bytes of the answer, and memory blocks that are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench.cost.asking import Taken

TABLE_PATH: Final = Path(__file__).with_name("table.json")
TOLERATED: Final = 2.0
TOLERATED_CPU: Final = 2.5
_DEAREST: Final = 10
_MIB: Final = 1 << 20


class Line(NamedTuple):
    """A line of the table. Per element of a request: thousandths of a pass of the reference's loop,
    bytes, blocks.
    """

    cpu: float
    out: float
    kept: float
    outcome: str


_FLOOR: Final = Line(cpu=4.0, out=16.0, kept=0.5, outcome="")
"""Figures up to this are never too high: they are the request's own cost, or noise."""

Table = Mapping[tuple[str, int], Line]
"""By the request's name and the number of elements."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The cost of one request beside the table's; ``size`` is the request's size. ``wrong``: what is too
    high, if anything.
    """

    name: str
    count: int
    size: int
    expected: Line | None
    taken: Taken
    wrong: Sequence[str]

    @property
    def line(self) -> Line:
        """The cost in the table's units."""
        return line_of(self.taken, self.count)


def line_of(taken: Taken, count: int) -> Line:
    """The table's line for a request with ``count`` elements."""
    return Line(
        round(1000 * taken.cpu / count, 1),
        round(taken.out / count, 1),
        round(max(0, taken.kept) / count, 1),
        taken.outcome.value,
    )


def judge(name: str, count: int, size: int, expected: Line | None, taken: Taken) -> Finding:
    """Compares one request with its line."""
    return Finding(name, count, size, expected, taken, _wrong(line_of(taken, count), expected))


def _wrong(found: Line, expected: Line | None) -> list[str]:
    if expected is None:
        return ["not in the table"]
    wrong = []
    if found.cpu > TOLERATED_CPU * expected.cpu + _FLOOR.cpu:
        wrong.append("CPU")
    if found.out > TOLERATED * expected.out + _FLOOR.out:
        wrong.append("answer")
    if found.kept > TOLERATED * expected.kept + _FLOOR.kept:
        wrong.append("kept")
    if found.outcome != expected.outcome:
        wrong.append(f"{found.outcome}, was {expected.outcome}")
    return wrong


def gone(table: Table, wanted: Iterable[tuple[str, int]]) -> list[str]:
    """Lines of the table for requests that no longer exist."""
    return sorted({name for name, _ in set(table) - set(wanted)})


def render(findings: Sequence[Finding], *, colour: bool) -> str:
    """The requests that are too expensive, or else the most expensive ones."""
    wrong = [finding for finding in findings if finding.wrong]
    dearest = sorted(findings, key=lambda finding: finding.line.cpu, reverse=True)[:_DEAREST]
    head = "dearer than the table tolerates" if wrong else "the dearest"
    columns = f"{'elements':>9}{'µs each':>9}{'ratio':>8}{'table':>8}{'s/MiB':>8}{'B out':>8}{'kept':>6}"
    lines = [_painted(f"{head:<60}{columns}", "1", colour)]
    for finding in wrong or dearest:
        found, expected = finding.line, finding.expected
        each_us = finding.taken.cpu_us / finding.count
        per_mib = finding.taken.cpu_us / 1e6 * _MIB / finding.size
        lines.append(
            f"{finding.name:<60}{finding.count:>9,}{each_us:>9.2f}{found.cpu:>8.1f}"
            + (f"{'-':>8}" if expected is None else f"{expected.cpu:>8.1f}")
            + f"{per_mib:>8.2f}{found.out:>8.1f}{found.kept:>6.1f}   "
            + _painted(", ".join(finding.wrong) or found.outcome, "1;31" if finding.wrong else "32", colour)
        )
    return "\n".join(lines)


def advice(findings: Sequence[Finding], lost: Sequence[str]) -> list[str]:
    """What to do about the findings."""
    renew = "`make cost COST_ARGS=--update` and commit bench/cost/table.json with the reason"
    wrong = [finding for finding in findings if finding.wrong]
    lines = [f"cost: {len(findings) - len(wrong)} of {len(findings)} requests cost what the table says."]
    if wrong:
        lines.append(
            "cost: make the dear ones cheap: count before decoding, answer what is named twice once, cut long strings; "
            f"if they are worth their cost, {renew}."
        )
    if lost:
        lines.append(f"cost: in the table and not asked: {', '.join(lost)}: {renew}.")
    return lines


def load(path: Path = TABLE_PATH) -> dict[tuple[str, int], Line]:
    """The committed table; empty without a file."""
    if not path.exists():
        return {}
    return {
        (name, int(count)): Line(*line)
        for name, counts in json.loads(path.read_text()).items()
        for count, line in counts.items()
    }


def save(table: Table, path: Path = TABLE_PATH) -> None:
    """Sorted, one line per request, so that diffs are readable."""
    by_name: dict[str, dict[int, Line]] = {}
    for (name, count), line in sorted(table.items()):
        by_name.setdefault(name, {})[count] = line
    lines = [f"{json.dumps(name)}: {json.dumps(counts)}" for name, counts in by_name.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def of_findings(findings: Iterable[Finding]) -> dict[tuple[str, int], Line]:
    """The table that these findings would make."""
    return {(finding.name, finding.count): finding.line for finding in findings}


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\033[{code}m{text}\033[0m" if colour else text
