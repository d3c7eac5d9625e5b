"""The committed counts, and the comparison with them. Pure, except for reading and writing the file."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from bench.guard.table import painted

COUNTS_PATH: Final = Path(__file__).with_name("counts.json")
# Runs of the same code differ by less than a fifth of it, see docs/benchmarks/README.md.
TOLERANCE: Final = 0.03
# A socket's buffer takes a megabyte in a send more or less.
_CALLS: Final = 0.5
_COLOURS: Final = {
    "steady": "32",
    "DEARER": "1;31",
    "cheaper": "1;36",
    "no baseline": "1;33",
    "not counted": "1;33",
}
_RENEW: Final = "`make perf-baseline` and commit bench/guard/counts.json with the reason"


@dataclass(frozen=True, slots=True)
class Count:
    """What one request costs the broker's network thread: instructions in user mode, and calls into the kernel."""

    instructions: int
    system_calls: float


class Verdict(Enum):
    """The verdict on a workload's count."""

    STEADY = "steady"
    DEARER = "DEARER"
    CHEAPER = "cheaper"
    NEW = "no baseline"
    GONE = "not counted"

    @property
    def fails(self) -> bool:
        """Whether the check fails; also if baseline and workloads do not match."""
        return self in (Verdict.DEARER, Verdict.NEW, Verdict.GONE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One workload's line of the table."""

    name: str
    verdict: Verdict
    count: Count | None = None
    expected: Count | None = None


Baseline = Mapping[str, Count]


def build() -> str:
    """Which Python this is: another version or compiler has other instructions for the same code."""
    return f"Python {platform.python_version()}, {platform.python_compiler()}, {platform.machine()}"


def judge(name: str, count: Count | None, expected: Count | None) -> Finding:
    """Of both counts the worse decides."""
    if count is None or expected is None:
        return Finding(name, Verdict.GONE if count is None else Verdict.NEW, count, expected)
    factor = count.instructions / expected.instructions
    more_calls = count.system_calls - expected.system_calls
    tolerated_calls = _CALLS + TOLERANCE * expected.system_calls
    if factor > 1 + TOLERANCE or more_calls > tolerated_calls:
        verdict = Verdict.DEARER
    elif factor < 1 - TOLERANCE or more_calls < -tolerated_calls:
        verdict = Verdict.CHEAPER
    else:
        verdict = Verdict.STEADY
    return Finding(name, verdict, count, expected)


def judge_all(counts: Baseline, baseline: Baseline, *, partial: bool = False) -> list[Finding]:
    """All findings; unless ``partial``, workloads of the baseline that were not counted come last."""
    names = [*counts, *(() if partial else (name for name in baseline if name not in counts))]
    return [judge(name, counts.get(name), baseline.get(name)) for name in names]


def render(findings: Sequence[Finding], *, colour: bool) -> str:
    """The table."""
    head = f"{'workload':<20}{'instructions':>14}{'baseline':>12}{'change':>9}{'calls':>9}{'baseline':>10}"
    return "\n".join([painted(head, "1", colour), *(_line(finding, colour) for finding in findings)])


def _line(finding: Finding, colour: bool) -> str:
    count, expected = finding.count, finding.expected
    change = f"{100 * (count.instructions / expected.instructions - 1):+.1f}%" if count and expected else "-"
    return (
        f"{finding.name:<20}"
        f"{f'{count.instructions:,}' if count else '-':>14}{f'{expected.instructions:,}' if expected else '-':>12}"
        f"{change:>9}"
        f"{f'{count.system_calls:.1f}' if count else '-':>9}{f'{expected.system_calls:.1f}' if expected else '-':>10}"
        f"   {painted(finding.verdict.value, _COLOURS[finding.verdict.value], colour)}"
    )


def advice(findings: Sequence[Finding]) -> list[str]:
    """A line for each kind of verdict that needs action."""
    lines = []
    dearer = [finding for finding in findings if finding.verdict is Verdict.DEARER]
    if dearer:
        lines.append(
            f"perf-check: dearer than the baseline: {_listed(dearer)}. Find what costs by "
            f'`make perf-check PERF_ARGS="--profile {dearer[0].name}"` and mend it; if it is worth its cost, {_RENEW}.'
        )
    unknown = [finding for finding in findings if finding.verdict in (Verdict.NEW, Verdict.GONE)]
    if unknown:
        lines.append(f"perf-check: workloads and baseline differ ({_listed(unknown)}): {_RENEW}.")
    cheaper = [finding for finding in findings if finding.verdict is Verdict.CHEAPER]
    if cheaper:
        lines.append(
            f"perf-check: cheaper than the baseline: {_listed(cheaper)}. To have the gain guarded, {_RENEW}."
        )
    return lines


def _listed(findings: Sequence[Finding]) -> str:
    return ", ".join(finding.name for finding in findings)


def load(code: str, of_build: str, path: Path = COUNTS_PATH) -> Baseline | None:
    """The committed counts of ``code`` (``python`` or ``compiled``) under this Python; None: there are none."""
    counts = json.loads(path.read_text()).get(of_build, {}).get(code) if path.exists() else None
    return None if counts is None else {name: Count(**line) for name, line in counts.items()}


def save(code: str, of_build: str, counts: Baseline, path: Path = COUNTS_PATH) -> None:
    """Puts these in the place of what was committed for this code and Python. One line per workload, for diffs."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(of_build, {})[code] = {name: asdict(count) for name, count in counts.items()}
    builds = []
    for name, codes in known.items():
        parts = []
        for kind, workloads in codes.items():
            lines = ",\n".join(
                f"      {json.dumps(one)}: {json.dumps(line)}" for one, line in workloads.items()
            )
            parts.append(f"    {json.dumps(kind)}: {{\n{lines}\n    }}")
        builds.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n  }")
    path.write_text("{\n" + ",\n".join(builds) + "\n}\n")
