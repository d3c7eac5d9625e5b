"""Small requests: 100 B over a few busy connections, and over a thousand connections."""

from __future__ import annotations

from bench import goals
from bench.client.batches import encode_batch
from bench.client.lanes import LanesRun, ProduceLane, closing, run_lanes
from bench.client.requests import produce_request
from bench.machine import Usage
from bench.percentiles import summarise
from bench.results import Better, Goal, Metric
from bench.visit import PARTITIONS, Visit
from bench.workload import Stage, Suite, Values, Workload

RECORD_BYTES = 100
SECONDS = 4.0


def request_metrics(key: str, title: str, rate_goal: Goal, cpu_goal: Goal) -> tuple[Metric, ...]:
    """The figures of a load of many small requests."""
    return (
        Metric(f"{key}.rate", title, "requests/s", Better.HIGHER, rate_goal),
        Metric(f"{key}.cpu", f"{title}: broker CPU", "µs/request", Better.LOWER, cpu_goal),
        Metric(f"{key}.p50", f"{title}: p50", "µs", Better.LOWER),
        Metric(f"{key}.p99", f"{title}: p99", "µs", Better.LOWER),
        Metric(f"{key}.p999", f"{title}: p99.9", "µs", Better.LOWER, detail=True),
    )


def request_values(key: str, run: LanesRun, usage: Usage) -> Values:
    """The values of ``request_metrics``."""
    times = summarise(run.all_times_us)
    return {
        f"{key}.rate": run.answered / run.seconds,
        f"{key}.cpu": usage.broker.total / run.answered * 1e6,
        f"{key}.p50": times.p50,
        f"{key}.p99": times.p99,
        f"{key}.p999": times.p999,
    }


def _requests(key: str, title: str, connections: int, in_flight: int, goal: Goal) -> Workload:
    batch = encode_batch(1, record_bytes=RECORD_BYTES)

    def run(visit: Visit) -> Values:
        topic = visit.fresh_topic()
        leaders = visit.leaders(topic)
        lanes = [
            ProduceLane(
                leaders[number % PARTITIONS],
                topic,
                produce_request(topic, number % PARTITIONS, batch),
                in_flight,
            )
            for number in range(connections)
        ]
        with closing(lanes):
            done, usage = visit.measure(lambda: run_lanes(lanes, visit.seconds(SECONDS)))
        return request_values(key, done, usage)

    return Workload(title, request_metrics(key, title, goal, goals.NOT_BELOW), run)


SUITE = Suite(
    "requests",
    "Small requests",
    Stage.ONE,
    (
        _requests("requests_100b", "100 B, 4 connections, 5 in flight", 4, 5, goals.RATE_OF_FEW),
        _requests(
            "connections_1000", "100 B, 1,000 connections, 1 in flight", 1000, 1, goals.RATE_OF_A_THOUSAND
        ),
    ),
    "One record of 100 B a request, acks=all, 3 partitions; as fast as they are answered.",
)
