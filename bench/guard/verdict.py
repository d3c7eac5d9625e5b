"""The baseline, and the comparison with it. Pure, except for reading and writing the file."""

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
COMPILED_PATH: Final = BASELINE_PATH.with_name("baseline-compiled.json")
DEFAULT_TOLERANCE: Final = 0.2
_MORE: Final = 2
_ABROAD: Final = 2
_CARRIES_OVER: Final = 0.1


class Verdict(Enum):
    """The verdict on a workload's cost."""

    STEADY = "steady"
    SLOWER = "SLOWER"
    FASTER = "faster"
    NEW = "no baseline"
    GONE = "not measured"

    @property
    def fails(self) -> bool:
        """Whether the check fails; also if baseline and workloads do not match."""
        return self in (Verdict.SLOWER, Verdict.NEW, Verdict.GONE)


@dataclass(frozen=True, slots=True)
class Expected:
    """A workload's line of the baseline. ``cpu_us`` is the value on its machine, for readers."""

    ratio: float
    tolerance: float = DEFAULT_TOLERANCE
    cpu_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """One machine's baseline: ``cpu`` and ``python`` identify it. Ratios carry over to other machines, though
    not well.
    """

    cpu: str = ""
    python: str = ""
    workloads: Mapping[str, Expected] = field(default_factory=dict)

    def is_of(self, cpu: str, python: str) -> bool:
        """Whether this is the machine's baseline, up to the patch version of its Python."""
        return (cpu, _minor(python)) == (self.cpu, _minor(self.python))


@dataclass(frozen=True, slots=True)
class Baselines:
    """The baselines of all machines that have one."""

    machines: Sequence[Baseline] = ()

    def of(self, cpu: str, python: str) -> Baseline | None:
        """The machine's own baseline."""
        return next((machine for machine in self.machines if machine.is_of(cpu, python)), None)

    def seen_from(self, cpu: str, python: str) -> Baseline:
        """The baseline for a machine. What was not measured on it is judged by the highest cost of all the
        others, with twice the tolerance.
        """
        own = self.of(cpu, python)
        measured = {} if own is None else own.workloads
        dearest: dict[str, Expected] = {}
        for machine in self.machines:
            for name, expected in machine.workloads.items():
                if name not in dearest or expected.ratio > dearest[name].ratio:
                    dearest[name] = expected
        loose = {
            name: replace(one, tolerance=_ABROAD * one.tolerance)
            for name, one in dearest.items()
            if name not in measured
        }
        if own is not None:
            return replace(own, workloads={**own.workloads, **loose})
        cpus, pythons = ([getattr(one, what) for one in self.machines] for what in ("cpu", "python"))
        return Baseline(" or ".join(dict.fromkeys(cpus)), " or ".join(dict.fromkeys(pythons)), loose)


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
    """Of several measurements of a workload the one nearest to the baseline counts: the others are noise."""
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
    """All findings; unless ``partial``, workloads of the baseline that were not measured come last."""
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
    """Measures (None: everything) and judges. A result outside its tolerance is measured up to twice more."""
    costs = {name: [cost] for name, cost in measured(only).items()}
    findings = judge_all(costs, baseline, partial=only is not None)
    for _ in range(_MORE):
        doubtful = [
            finding.name for finding in findings if finding.verdict in (Verdict.SLOWER, Verdict.FASTER)
        ]
        if not doubtful:
            break
        for name, cost in measured(doubtful).items():
            costs[name].append(cost)
        findings = judge_all(costs, baseline, partial=only is not None)
    return findings


def renewed(before: Baselines, costs: Mapping[str, Sequence[Cost]], cpu: str, python: str) -> Baselines:
    """The baselines with the median of these costs for this machine; tolerances stay unchanged.

    Nobody has all machines available. What changed here by more than a tenth is taken out of the others'
    baselines: a request's parts cost different shares on them, so that factors do not carry over.
    """
    old = before.of(cpu, python)
    known = before.seen_from(cpu, python)
    measured = {} if old is None else old.workloads
    tolerances = {
        name: one.tolerance / (1 if name in measured else _ABROAD) for name, one in known.workloads.items()
    }
    workloads = {}
    for name, found in costs.items():
        middle = sorted(found, key=lambda cost: cost.ratio)[len(found) // 2]
        ratio = statistics.median(cost.ratio for cost in found)
        tolerance = tolerances.get(name, DEFAULT_TOLERANCE)
        workloads[name] = Expected(round(ratio, 4), tolerance, round(middle.cpu_us, 1))
    own = Baseline(cpu, python, workloads)
    if old is None:
        return Baselines((*before.machines, own))
    return Baselines(
        tuple(own if machine is old else _still_true(machine, old, own) for machine in before.machines)
    )


def _still_true(machine: Baseline, old: Baseline, new: Baseline) -> Baseline:
    def holds(name: str) -> bool:
        before, now = old.workloads.get(name), new.workloads.get(name)
        return now is not None and (before is None or abs(now.ratio / before.ratio - 1) <= _CARRIES_OVER)

    return replace(machine, workloads={name: one for name, one in machine.workloads.items() if holds(name)})


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def load(path: Path) -> Baselines:
    """The committed baselines; none without a file."""
    if not path.exists():
        return Baselines()
    machines = [
        Baseline(
            machine["cpu"],
            machine["python"],
            {name: Expected(**line) for name, line in machine["workloads"].items()},
        )
        for machine in json.loads(path.read_text())
    ]
    return Baselines(tuple(machines))


def save(baselines: Baselines, path: Path) -> None:
    """One line per workload, so that diffs are readable."""
    path.write_text("[\n" + ",\n".join(map(_as_json, baselines.machines)) + "\n]\n")


def _as_json(baseline: Baseline) -> str:
    lines = [
        f"      {json.dumps(name)}: {json.dumps(asdict(expected))}"
        for name, expected in baseline.workloads.items()
    ]
    head = f'  {{\n    "cpu": {json.dumps(baseline.cpu)},\n    "python": {json.dumps(baseline.python)},\n'
    return head + '    "workloads": {\n' + ",\n".join(lines) + "\n    }\n  }"
