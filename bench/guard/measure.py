"""Times workloads and reference alternately, and finds the cost behind a noisy machine's times.

Noise only ever adds: a neighbour takes the core, and afterwards the caches are cold. So each workload runs in
many slices of about a millisecond, spread over the whole run, each after an equal warm-up of the caches. A
slice is not counted if the kernel gave the core to another process in it or before it. The most expensive
quarter of a slice's requests is left out. The cost is a low quantile of all slices.
"""

from __future__ import annotations

import gc
import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from bench.guard.reference import Reference, ReferenceCost
from bench.guard.workloads.workload import Workload

_KEPT_SHARE: Final = 0.75
_QUANTILE: Final = 0.1
_ENOUGH: Final = 60
_TOO_FEW: Final = 5
_REST_S: Final = 0.0005

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one request: microseconds of CPU here, and the same as a multiple of the reference,
    valid anywhere.
    """

    cpu_us: float
    ratio: float


@dataclass(slots=True)
class Samples:
    """The measured times in nanoseconds; ``calm`` without interruption of the core, ``all`` with the rest."""

    calm: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)

    def add(self, value_ns: float, *, calm: bool) -> None:
        self.all.append(value_ns)
        if calm:
            self.calm.append(value_ns)

    def cost_ns(self) -> float:
        """The low quantile of the calm ones; of all if hardly any was calm."""
        return low_quantile(self.calm if len(self.calm) >= _TOO_FEW else self.all)


def low_quantile(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sorted(values)[int(_QUANTILE * (len(values) - 1))]


def slice_cost(requests_ns: Sequence[float]) -> float:
    """The mean of a slice without its most expensive requests."""
    kept = sorted(requests_ns)[: math.ceil(len(requests_ns) * _KEPT_SHARE)]
    return sum(kept) / len(kept)


def measure(
    workloads: Sequence[Workload],
    reference: Reference,
    *,
    budget_s: float,
    enough: int = _ENOUGH,
    progress: Progress = lambda _share: None,
) -> Mapping[str, Cost]:
    """The workloads' costs by name, from ``enough`` calm slices each, or from what ``budget_s`` allowed."""
    requests = {workload.name: Samples() for workload in workloads}
    computing, moving = Samples(), Samples()
    end = time.monotonic() + budget_s
    with settled_heap():
        while time.monotonic() < end:
            lacking = [workload for workload in workloads if len(requests[workload.name].calm) < enough]
            if not lacking:
                break
            for workload in lacking:
                _time_reference(reference, computing, moving)
                _time_slice(workload, requests[workload.name])
            least = min(len(samples.calm) for samples in requests.values())
            progress(min(least / enough, 1.0))
    passed = ReferenceCost(computing.cost_ns(), moving.cost_ns())
    return {
        workload.name: _cost(requests[workload.name].cost_ns(), passed.blend(workload.moving_share))
        for workload in workloads
    }


def _cost(request_ns: float, reference_ns: float) -> Cost:
    return Cost(request_ns / 1000, request_ns / reference_ns)


@contextmanager
def settled_heap() -> Iterator[None]:
    """Freezes the garbage collector's objects, as the daemon does after its start."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _time_reference(reference: Reference, computing: Samples, moving: Samples) -> None:
    before = _rested()
    reference.time_once()  # warms the caches
    passed = reference.time_once()
    calm = _switches() == before
    computing.add(passed.computing_ns, calm=calm)
    moving.add(passed.moving_ns, calm=calm)


def _time_slice(workload: Workload, samples: Samples) -> None:
    workload.begin_slice()
    before = _rested()
    for _ in range(workload.per_slice):  # warms the caches
        workload.request()
    requests = [workload.request() for _ in range(workload.per_slice)]
    samples.add(slice_cost(requests), calm=_switches() == before)
    workload.check()


def _rested() -> int:
    """Sleeps, because the kernel lets a thread run longest after a sleep; then returns :func:`_switches`."""
    time.sleep(_REST_S)
    return _switches()


def _switches() -> int:
    """How often the kernel took the core from this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
