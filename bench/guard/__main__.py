"""``python -m bench.guard``: counts instructions, or with ``--times`` measures CPU time; compares and prints.

Exits 1 on a regression, 2 when it could not check. See docs/benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.guard import callgrind, counts, table, verdict
from bench.guard.measure import Cost, measure
from bench.guard.profiling import profile
from bench.guard.reference import Reference
from bench.guard.stage import Stage, StageError, data_parent, staged_broker
from bench.guard.workloads import all_workloads
from bench.guard.workloads.workload import Workload
from broker.utils.compiled import NOT_COMPILED, compiled_by
from broker.utils.logging_setup import configure_logging

_BUDGET_S: Final = 18.0
_FEW_BUDGET_S: Final = 6.0
_BASELINE_RUNS: Final = 3
_BASELINE_BUDGET_S: Final = 40.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(argv)
    configure_logging({"LANDLINE_LOG_LEVEL": "warning"})
    if options.profile:
        with staged_broker() as stage:
            profile(stage, _chosen(stage, [options.profile])[0])
        return 0
    try:
        if options.times:
            return _write_times() if options.update else _check_times(options.only)
        return _write_counts() if options.update else _check_counts(options.only or ())
    except StageError as error:
        print(f"perf-check: nothing was judged: {error}")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--times", action="store_true", help="measure CPU time, on a quiet machine")
    parser.add_argument("--update", action="store_true", help="write a new baseline instead of comparing")
    parser.add_argument("--only", action="append", metavar="WORKLOAD", help="this one alone; repeatable")
    parser.add_argument("--profile", metavar="WORKLOAD", help="show where its time goes, and compare nothing")
    return parser


def _check_counts(only: Sequence[str]) -> int:
    build = counts.build()
    baseline = counts.load(_code(), build)
    if baseline is None:
        print(
            f"perf-check: not checked: bench/guard/counts.json has nothing of {build}, and another Python has other "
            "instructions. `make perf-baseline` in the commit before yours makes it the baseline of yours."
        )
        return 0
    findings = counts.judge_all(callgrind.count(_known(only, baseline)), baseline, partial=bool(only))
    print(counts.render(findings, colour=sys.stdout.isatty()))
    for line in counts.advice(findings):
        print(line)
    return int(any(finding.verdict.fails for finding in findings))


def _write_counts() -> int:
    counted = callgrind.count()
    before = counts.load(_code(), counts.build())
    counts.save(_code(), counts.build(), counted)
    print(counts.render(counts.judge_all(counted, before or counted), colour=sys.stdout.isatty()))
    print(f"written: {counts.COUNTS_PATH}")
    return 0


def _code() -> str:
    return "python" if compiled_by() == NOT_COMPILED else "compiled"


def _check_times(only: Sequence[str] | None) -> int:
    committed = verdict.load(_baseline_path())
    machine = _cpu_model(), platform.python_version()
    baseline = committed.seen_from(*machine)
    findings = verdict.settle(_measured, baseline, only)
    print(table.render(findings, baseline, colour=sys.stdout.isatty()))
    for line in table.advice(findings, foreign=committed.of(*machine) is None):
        print(line)
    return int(any(finding.verdict.fails for finding in findings))


def _write_times() -> int:
    runs = [_measured(None, _BASELINE_BUDGET_S) for _ in range(_BASELINE_RUNS)]
    costs = {name: [run[name] for run in runs] for name in runs[0]}
    machine = _cpu_model(), platform.python_version()
    path = _baseline_path()
    renewed = verdict.renewed(verdict.load(path), costs, *machine)
    verdict.save(renewed, path)
    baseline = renewed.seen_from(*machine)
    print(table.render(verdict.judge_all(costs, baseline), baseline, colour=sys.stdout.isatty()))
    print(f"written: {path}")
    return 0


def _baseline_path() -> Path:
    """Compiled code has its own baseline: with Python's it could become twice as dear unseen."""
    return verdict.BASELINE_PATH if compiled_by() == NOT_COMPILED else verdict.COMPILED_PATH


def _measured(only: Sequence[str] | None, budget_s: float | None = None) -> Mapping[str, Cost]:
    """Measures on a new broker."""
    if budget_s is None:
        budget_s = _BUDGET_S if only is None else _FEW_BUDGET_S
    with staged_broker() as stage, Reference(data_parent()) as reference:
        workloads = _chosen(stage, only)
        return measure(workloads, reference, budget_s=budget_s, progress=_show)


def _chosen(stage: Stage, only: Sequence[str] | None) -> list[Workload]:
    workloads = {workload.name: workload for workload in all_workloads(stage)}
    return [workloads[name] for name in _known(workloads if only is None else only, workloads)]


def _known(names: Iterable[str], workloads: Iterable[str]) -> list[str]:
    unknown = set(names) - set(workloads)
    if unknown:
        raise SystemExit(
            f"perf-check: no workload {', '.join(sorted(unknown))}; there are {', '.join(workloads)}"
        )
    return list(names)


def _show(share: float) -> None:
    if sys.stderr.isatty():
        print(
            f"\r{'█' * int(30 * share):░<30} {share:4.0%}",
            end="\r\033[K" if share >= 1 else "",
            file=sys.stderr,
        )


def _cpu_model() -> str:
    """Name, family and model: processors of several generations have the same name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" not in fields:
        return platform.machine()
    return f"{fields['model name']}, family {fields.get('cpu family')}, model {fields.get('model')}"


if __name__ == "__main__":
    sys.exit(main())
