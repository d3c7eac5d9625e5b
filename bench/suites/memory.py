"""Resident memory: idle, and after everything that was done to the broker before this suite, which
is last.
"""

from __future__ import annotations

from bench import goals
from bench.results import Better, Metric
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload


def _resident(visit: Visit) -> Values:
    return {"rss_idle": visit.idle_rss_mib, "rss_loaded": visit.broker.rss_mb()}


SUITE = Suite(
    "memory",
    "Memory",
    Stage.ONE,
    (
        Workload(
            "memory",
            (
                Metric("rss_idle", "memory idle (RSS)", "MiB", Better.LOWER, goals.RSS_IDLE),
                Metric("rss_loaded", "memory after load (RSS)", "MiB", Better.LOWER, goals.RSS_LOADED),
            ),
            _resident,
            repeats=False,
        ),
    ),
    "Idle: 3 s after the start. After load: after the warm-up and all suites above that use the same broker.",
)
