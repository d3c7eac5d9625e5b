"""Two thousand partitions on one broker that is otherwise idle."""

from __future__ import annotations

import time

from bench import goals
from bench.machine import run_seconds
from bench.results import Better, Metric
from bench.visit import Visit, pause
from bench.workload import Stage, Suite, Values, Workload
from rig.topics import create_topic

COUNT = 2000
SETTLE_S = 5.0
IDLE_S = 8.0
CREATION_TIMEOUT_S = 120.0


def _many(visit: Visit) -> Values:
    with visit.new_brokers() as brokers:
        (broker,) = brokers
        broker.start()
        before = broker.cpu_seconds()
        start = time.perf_counter()
        create_topic(broker.bootstrap, "many", visit_count(visit))
        created_s = time.perf_counter() - start
        created_cpu = (broker.cpu_seconds() - before).total
        pause(SETTLE_S)
        busy = run_seconds(broker.process.pid)
        _, usage = visit.measure(lambda: pause(IDLE_S), brokers)
        busy = run_seconds(broker.process.pid) - busy
        return {
            "partitions.rss": broker.rss_mb(),
            "partitions.idle": busy / usage.seconds * 100,
            "partitions.create": created_s,
            "partitions.create_cpu": created_cpu,
        }


def visit_count(visit: Visit) -> int:
    """A quick run creates fewer."""
    return min(COUNT, max(200, round(COUNT * visit.scale)))


SUITE = Suite(
    "partitions",
    f"{COUNT:,} partitions",
    Stage.OWN,
    (
        Workload(
            f"{COUNT:,} partitions",
            (
                Metric("partitions.rss", "memory (RSS)", "MiB", Better.LOWER, goals.MANY_PARTITIONS),
                Metric("partitions.idle", "idle CPU", "% of a core", Better.LOWER, goals.MANY_PARTITIONS),
                Metric("partitions.create", "to create them, until all have leaders", "s", Better.LOWER),
                Metric("partitions.create_cpu", "to create them: broker CPU", "CPU s", Better.LOWER),
            ),
            _many,
            repeats=False,
        ),
    ),
    "One topic, one broker, a new one for this alone; idle CPU over 8 s, 5 s after the creation.",
)
