"""The parts of a suite: workloads, their figures, and the brokers that they require."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.machine import Usage
from bench.results import Better, Goal, Metric
from bench.targets import WHOLE_BROKERS, Target
from bench.visit import GIB, Visit

Values = Mapping[str, float]
"""Figures by their metrics' keys."""


class Stage(enum.Enum):
    """The brokers that exist when a workload begins."""

    OWN = "none: the workload starts its own"
    ONE = "one broker, warm"
    THREE = "three brokers, warm"
    TLS = "one broker with TLS, warm"


@dataclass(frozen=True, slots=True)
class Workload:
    """One operation that is done to every target. ``repeats``: a run that neighbours disturbed
    is repeated.
    """

    title: str
    metrics: tuple[Metric, ...]
    run: Callable[[Visit], Values]
    repeats: bool = True
    targets: frozenset[Target] = WHOLE_BROKERS


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite: workloads about one subject, selected by one option of the command."""

    name: str
    title: str
    stage: Stage
    workloads: tuple[Workload, ...]
    note: str = ""

    def only(self, parts: Sequence[str]) -> Suite:
        """The workloads whose titles contain one of ``parts``; all if there are no parts."""
        chosen = tuple(
            each for each in self.workloads if not parts or any(part in each.title for part in parts)
        )
        return replace(self, workloads=chosen)


def rate_metrics(
    key: str, title: str, rate_goal: Goal | None = None, cpu_goal: Goal | None = None
) -> tuple[Metric, ...]:
    """The four figures of a load that moves bytes."""
    return (
        Metric(f"{key}.rate", title, "MiB/s", Better.HIGHER, rate_goal),
        Metric(f"{key}.cpu", f"{title}: broker CPU", "CPU s/GiB", Better.LOWER, cpu_goal),
        Metric(f"{key}.user", f"{title}: broker CPU, user", "CPU s/GiB", Better.LOWER, detail=True),
        Metric(f"{key}.system", f"{title}: broker CPU, system", "CPU s/GiB", Better.LOWER, detail=True),
    )


def rate_values(key: str, moved_bytes: float, usage: Usage, mib_per_s: float | None = None) -> Values:
    """The values of ``rate_metrics``; a tool's own ``mib_per_s`` excludes its start."""
    gib = moved_bytes / GIB
    return {
        f"{key}.rate": mib_per_s if mib_per_s is not None else gib * 1024 / usage.seconds,
        f"{key}.cpu": usage.broker.total / gib,
        f"{key}.user": usage.broker.user / gib,
        f"{key}.system": usage.broker.system / gib,
    }
