"""The baseline, and what a cost is beside it. Pure but for reading and writing the file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from bench.guard.measure import Cost

BASELINE_PATH: Final = Path(__file__).with_name("baseline.json")
DEFAULT_TOLERANCE: Final = 0.2
_RETRIES: Final = 2
_ABROAD: Final = 2


class Verdict(Enum):
    """What became of a workload's cost."""

    STEADY = "steady"
    SLOWER = "SLOWER"
    FASTER = "faster"
    NEW = "no baseline"
    GONE = "not measured"

    @property
    def fails(self) -> bool:
        """Whether the check fails by it: also where baseline and workloads do not know each other."""
        return self in (Verdict.SLOWER, Verdict.NEW, Verdict.GONE)


@dataclass(frozen=True, slots=True)
class Expected:
    """A workload's line of the baseline. ``cpu_us`` is where it was taken, for readers."""

    ratio: float
    tolerance: float = DEFAULT_TOLERANCE
    cpu_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """``cpu`` and ``python`` say where it was taken: ratios carry over to other machines, though not perfectly."""

    cpu: str = ""
    python: str = ""
    workloads: Mapping[str, Expected] = field(default_factory=dict)

    def seen_from(self, cpu: str, python: str) -> Baseline:
        """As it is to be read on a machine: on another CPU or minor version of Python with twice the tolerance."""
        if (cpu, _minor(python)) == (self.cpu, _minor(self.python)):
            return self
        loose = {
            name: replace(expected, tolerance=_ABROAD * expected.tolerance)
            for name, expected in self.workloads.items()
        }
        return replace(self, workloads=loose)


@dataclass(frozen=True, slots=True)
class Finding:
    """One workload's line of the table; ``attempts`` is how often it was measured."""

    name: str
    verdict: Verdict
    cost: Cost | None = None
    expected: Expected | None = None
    attempts: int = 1

    @property
    def factor(self) -> float | None:
        """The cost as a multiple of the expected one."""
        if self.cost is None or self.expected is None:
            return None
        return self.cost.ratio / self.expected.ratio


def judge(name: str, costs: Sequence[Cost], expected: Expected | None) -> Finding:
    """Of several measurements of a workload the one nearest to the baseline counts: noise is no news."""
    if expected is None:
        return Finding(name, Verdict.NEW, costs[0], None, len(costs))
    cost = min(costs, key=lambda one: abs(one.ratio - expected.ratio))
    factor = cost.ratio / expected.ratio
    if factor > 1 + expected.tolerance:
        verdict = Verdict.SLOWER
    elif factor < 1 - expected.tolerance:
        verdict = Verdict.FASTER
    else:
        verdict = Verdict.STEADY
    return Finding(name, verdict, cost, expected, len(costs))


def judge_all(
    costs: Mapping[str, Sequence[Cost]], baseline: Baseline, *, partial: bool = False
) -> list[Finding]:
    """All findings, those of the baseline that were not measured last, unless ``partial`` was asked for."""
    findings = [judge(name, found, baseline.workloads.get(name)) for name, found in costs.items()]
    if not partial:
        gone = [name for name in baseline.workloads if name not in costs]
        findings += [Finding(name, Verdict.GONE, None, baseline.workloads[name], 0) for name in gone]
    return findings


def settle(
    measured: Callable[[Sequence[str] | None], Mapping[str, Cost]],
    baseline: Baseline,
    only: Sequence[str] | None = None,
) -> list[Finding]:
    """Measures (None: everything) and judges; what is off its tolerance is measured up to twice more before it is
    believed.
    """
    costs = {name: [cost] for name, cost in measured(only).items()}
    findings = judge_all(costs, baseline, partial=only is not None)
    for _ in range(_RETRIES):
        doubtful = [
            finding.name for finding in findings if finding.verdict in (Verdict.SLOWER, Verdict.FASTER)
        ]
        if not doubtful:
            break
        for name, cost in measured(doubtful).items():
            costs[name].append(cost)
        findings = judge_all(costs, baseline, partial=only is not None)
    return findings


def renewed(before: Baseline, costs: Mapping[str, Sequence[Cost]], cpu: str, python: str) -> Baseline:
    """The baseline of these costs, the middle of each; tolerances stay as they were."""
    workloads = {}
    for name, found in costs.items():
        old = before.workloads.get(name)
        middle = sorted(found, key=lambda cost: cost.ratio)[len(found) // 2]
        workloads[name] = Expected(
            round(statistics.median(cost.ratio for cost in found), 4),
            DEFAULT_TOLERANCE if old is None else old.tolerance,
            round(middle.cpu_us, 1),
        )
    return Baseline(cpu, python, workloads)


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def load(path: Path = BASELINE_PATH) -> Baseline:
    """The committed baseline; an empty one where there is no file."""
    if not path.exists():
        return Baseline()
    data = json.loads(path.read_text())
    workloads = {name: Expected(**line) for name, line in data["workloads"].items()}
    return Baseline(data["cpu"], data["python"], workloads)


def save(baseline: Baseline, path: Path = BASELINE_PATH) -> None:
    """One line a workload, so that a diff reads well."""
    lines = [
        f"    {json.dumps(name)}: {json.dumps(asdict(expected))}"
        for name, expected in baseline.workloads.items()
    ]
    head = f'{{\n  "cpu": {json.dumps(baseline.cpu)},\n  "python": {json.dumps(baseline.python)},\n'
    path.write_text(head + '  "workloads": {\n' + ",\n".join(lines) + "\n  }\n}\n")
