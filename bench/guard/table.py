"""The printed output: a line per workload, then what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.guard.verdict import Baseline, Finding, Verdict

_COLOURS: Final[Mapping[Verdict, str]] = {
    Verdict.STEADY: "32",
    Verdict.SLOWER: "1;31",
    Verdict.FASTER: "1;36",
    Verdict.NEW: "1;33",
    Verdict.GONE: "1;33",
}
_RENEW: Final = "`make perf-times PERF_ARGS=--update` and commit bench/guard/baseline*.json with the reason"


def render(findings: Sequence[Finding], baseline: Baseline, *, colour: bool) -> str:
    """The table."""
    origin = f"{baseline.cpu}, Python {baseline.python}" if baseline.cpu else "none yet"
    lines = [
        painted(f"{'workload':<20}{'µs/request':>11}{'ratio':>9}{'baseline':>10}{'change':>9}", "1", colour)
        + f"   (baseline: {origin})"
    ]
    for finding in findings:
        cost, expected, factor = finding.cost, finding.expected, finding.factor
        lines.append(
            f"{finding.name:<20}"
            + (f"{'-':>11}{'-':>9}" if cost is None else f"{cost.cpu_us:>11.1f}{cost.ratio:>9.3f}")
            + (f"{'-':>10}" if expected is None else f"{expected.ratio:>10.3f}")
            + (f"{'-':>9}" if factor is None else f"{100 * (factor - 1):>+8.1f}%")
            + "   "
            + painted(finding.verdict.value, _COLOURS[finding.verdict], colour)
            + (f" (measured {finding.attempts} times)" if finding.attempts > 1 else "")
        )
    return "\n".join(lines)


def advice(findings: Sequence[Finding], *, foreign: bool) -> list[str]:
    """A line for each kind of verdict that needs action; ``foreign``: the baseline is another machine's."""
    lines = []
    slower = [finding for finding in findings if finding.verdict is Verdict.SLOWER]
    if slower:
        lines.append(
            f"perf-times: dearer than the baseline: {_listed(slower)}. Find what costs by "
            f'`make perf-times PERF_ARGS="--profile {slower[0].name}"` and mend it; if it is worth its cost, {_RENEW}.'
        )
        if foreign:
            lines.append(
                "perf-times: baselines were taken on another CPU or Python, which is no more than a guide: does the "
                "commit before it pass here? If not, `make perf-times PERF_ARGS=--update` there adds this machine."
            )
    unknown = [finding.name for finding in findings if finding.verdict in (Verdict.NEW, Verdict.GONE)]
    if unknown:
        lines.append(f"perf-times: workloads and baseline differ ({', '.join(unknown)}): {_RENEW}.")
    faster = [finding for finding in findings if finding.verdict is Verdict.FASTER]
    if faster:
        lines.append(
            f"perf-times: cheaper than the baseline: {_listed(faster)}. To have the gain guarded, {_RENEW}."
        )
    return lines


def _listed(findings: Sequence[Finding]) -> str:
    return ", ".join(f"{finding.name} {finding.factor or 0:.2f} times" for finding in findings)


def painted(text: str, code: str, colour: bool) -> str:
    """The text in a terminal's colour, if one is wanted."""
    return f"\033[{code}m{text}\033[0m" if colour else text
