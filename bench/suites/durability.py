"""fsync on every append: many connections that each wait for the disk."""

from __future__ import annotations

from bench import goals
from bench.client.batches import encode_batch
from bench.client.lanes import ProduceLane, closing, run_lanes
from bench.client.requests import produce_request
from bench.percentiles import summarise
from bench.results import Better, Goal, Metric
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload

CONNECTIONS = 16
SECONDS = 4.0


def _fsync(key: str, title: str, partitions: int, goal: Goal | None) -> Workload:
    batch = encode_batch(1)

    def run(visit: Visit) -> Values:
        topic = visit.fresh_topic(partitions, config={"flush.messages": "1"})
        leaders = visit.leaders(topic)
        lanes = [
            ProduceLane(
                leaders[number % partitions], topic, produce_request(topic, number % partitions, batch)
            )
            for number in range(CONNECTIONS)
        ]
        with closing(lanes):
            done, usage = visit.measure(lambda: run_lanes(lanes, visit.seconds(SECONDS)))
        times = summarise(done.all_times_us)
        return {
            f"{key}.rate": done.answered / done.seconds,
            f"{key}.cpu": usage.broker.total / done.answered * 1e6,
            f"{key}.p50": times.p50,
            f"{key}.p99": times.p99,
        }

    metrics = (
        Metric(f"{key}.rate", title, "requests/s", Better.HIGHER, goal),
        Metric(f"{key}.cpu", f"{title}: broker CPU", "µs/request", Better.LOWER),
        Metric(f"{key}.p50", f"{title}: p50", "µs", Better.LOWER),
        Metric(f"{key}.p99", f"{title}: p99", "µs", Better.LOWER),
    )
    return Workload(title, metrics, run)


SUITE = Suite(
    "durability",
    "fsync on every append",
    Stage.ONE,
    (
        _fsync("fsync_1", f"{CONNECTIONS} connections, 1 partition", 1, goals.FSYNC),
        _fsync(
            "fsync_16",
            f"{CONNECTIONS} connections, {CONNECTIONS} partitions",
            CONNECTIONS,
            goals.FSYNC_OF_MANY,
        ),
    ),
    "flush.messages=1 (log.flush.interval.messages), one record of 1 KiB a request, acks=all, 1 in flight.",
)
