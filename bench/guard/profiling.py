"""Profiles a workload: cProfile over the Processor's turns, without the client's side."""

from __future__ import annotations

import cProfile
import pstats
import time
from typing import Final

from bench.guard.stage import Stage
from bench.guard.workloads.workload import Workload

_SLICES: Final = 40
_LINES: Final = 30


def profile(stage: Stage, workload: Workload) -> None:
    """Prints the most expensive functions. The profiler adds to each call, so many small functions look
    too expensive.
    """
    workload.begin_slice()
    workload.request()
    profiler = cProfile.Profile(time.thread_time)
    plain = stage.turn

    def profiled() -> None:
        profiler.enable()
        try:
            plain()
        finally:
            profiler.disable()

    for _ in range(_SLICES):
        stage.turn = plain
        workload.begin_slice()
        workload.request()
        stage.turn = profiled
        for _ in range(workload.per_slice):
            workload.request()
    print(f"{workload.name}: {_SLICES * workload.per_slice} requests")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(_LINES)
