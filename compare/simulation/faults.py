"""The cost of failing connections and of slow hosts, as measured, or assumed where it was not measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np

from compare.recorded import Run, Step
from compare.simulation.measured import COLD_START, Times, served_us

ASSUMED_TIMEOUT_MS = 10_000.0
"""OpenSSH's ConnectTimeout as the launcher sets it: the cost of a dead host if it was not measured."""
ASSUMED_SLOW_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class FaultCosts:
    """The cost of faults. ``refused_ms`` and ``dead_ms``: how long a connection took to fail; empty if
    not measured.
    """

    connections: int
    failed: int
    refused_ms: Times
    dead_ms: Times
    slow_factor: float | None

    @property
    def failure_bound(self) -> float | None:
        """The upper bound (95 %) of the share of failing connections in undisturbed starts; None
        without connections.
        """
        if not self.connections:
            return None
        if not self.failed:
            return min(1.0, 3 / self.connections)  # the rule of three
        share = self.failed / self.connections
        return min(1.0, share + 1.645 * float(np.sqrt(share * (1 - share) / self.connections)))

    @property
    def unanswered_ms(self) -> Times:
        """How long a connection to a host that does not answer occupies its lane: measured, else
        the timeout.
        """
        return self.dead_ms if len(self.dead_ms) else np.array([ASSUMED_TIMEOUT_MS])

    @property
    def stands_for_slow(self) -> float:
        """The factor by which a slow host takes longer: measured, else assumed."""
        return ASSUMED_SLOW_FACTOR if self.slow_factor is None else self.slow_factor


def fault_costs(runs: Iterable[Run], system: str) -> FaultCosts:
    """The cost of faults in one system's runs."""
    own = [run for run in runs if run.system == system]
    connects = [step for run in own if run.scenario == COLD_START for step in _connects(run)]
    factors = [factor for run in own if run.scenario == "slow-host" and (factor := _slowest_by_median(run))]
    return FaultCosts(
        connections=len(connects),
        failed=sum(step.outcome != "ok" for step in connects),
        refused_ms=_failing(own, "ssh-refused"),
        dead_ms=_failing(own, "dead-host"),
        slow_factor=median(factors) if factors else None,
    )


def _connects(run: Run) -> list[Step]:
    return [step for step in run.steps if step.role == "launcher" and step.name == "Connect"]


def _failing(runs: Iterable[Run], scenario: str) -> Times:
    chosen = (run for run in runs if run.scenario == scenario)
    return np.array([step.ms for run in chosen for step in _connects(run) if step.outcome == "failed"])


def _slowest_by_median(run: Run) -> float | None:
    """The slowest member's time from the beginning of the run, as a multiple of the others' median."""
    times = sorted(end - run.start_us for end in served_us(run).values())
    if run.model != "independent" or len(times) < 2:
        return None  # a push's times include the order of launch
    return times[-1] / median(times[:-1])
