"""End-to-end latency at a fixed rate, from a record's scheduled time until a waiting fetch has it."""

from __future__ import annotations

from bench import goals
from bench.client.batches import encode_batch
from bench.client.latency import end_to_end
from bench.client.passing_on import passed_on
from bench.percentiles import summarise
from bench.results import Better, Goal, Metric
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload

PER_SECOND = 500
REPLICATED_PER_SECOND = 200
SECONDS = 10.0
WARM_UP_S = 2.0


def latency_workload(
    key: str, title: str, replicas: int, goal_p50: Goal | None = None, goal_p99: Goal | None = None
) -> Workload:
    """Records of 1 KiB, acks=all, on one partition with this many replicas; the first seconds are
    not counted.
    """
    batch = encode_batch(1)
    rate = PER_SECOND if replicas == 1 else REPLICATED_PER_SECOND

    def run(visit: Visit) -> Values:
        topic = visit.fresh_topic(1, replicas)
        port = visit.leaders(topic)[0]
        # On the topic itself: the first records of a new topic wait for its followers to start, in Kafka up
        # to 0.5 s.
        before = end_to_end(port, topic, batch, rate, visit.seconds(WARM_UP_S))
        begin = len(before.read_us)
        found, _ = visit.measure(
            lambda: end_to_end(port, topic, batch, rate, visit.seconds(SECONDS), begin=begin)
        )
        with visit.new_directory() as directory:
            directory.mkdir()
            bare = passed_on(batch, rate, visit.seconds(SECONDS), directory)
        read, acked = summarise(found.read_us), summarise(found.acked_us)
        return {
            f"{key}.bare_p50": summarise(bare.read_us).p50,
            f"{key}.p50": read.p50,
            f"{key}.p99": read.p99,
            f"{key}.p999": read.p999,
            f"{key}.acked_p50": acked.p50,
            f"{key}.acked_p99": acked.p99,
        }

    metrics = (
        Metric(f"{key}.p50", f"{title}: p50", "µs", Better.LOWER, goal_p50),
        Metric(f"{key}.p99", f"{title}: p99", "µs", Better.LOWER, goal_p99),
        Metric(f"{key}.p999", f"{title}: p99.9", "µs", Better.LOWER),
        Metric(f"{key}.bare_p50", f"{title}: a bare server beside it, p50", "µs", Better.LOWER, detail=True),
        Metric(f"{key}.acked_p50", f"{title}, acknowledged: p50", "µs", Better.LOWER),
        Metric(f"{key}.acked_p99", f"{title}, acknowledged: p99", "µs", Better.LOWER),
    )
    return Workload(title, metrics, run)


SUITE = Suite(
    "latency",
    "End-to-end latency",
    Stage.ONE,
    (latency_workload("latency", "end to end", 1, goals.LATENCY_P50, goals.LATENCY_P99),),
    f"{PER_SECOND} records of 1 KiB a second, acks=all, one partition; one thread writes and reads. A bare server "
    "only writes a record to a file, acknowledges it and passes it on.",
)
