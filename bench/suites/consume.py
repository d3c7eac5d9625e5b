"""Reading what is in the page cache, what is not, and what one cold reader does to the others."""

from __future__ import annotations

from bench.client import transfer
from bench.client.batches import Batch, encode_batch
from bench.client.lanes import FetchLane, ScanLane, closing, run_lanes
from bench.pages import drop_from_cache
from bench.percentiles import summarise
from bench.results import Better, Metric
from bench.suites.throughput import FETCH_BYTES, HOT_MIB, KIB, SHARED
from bench.visit import PARTITIONS, Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from tests.support.processes import MIB

COLD_MIB = 768
HOT_LANES, HOT_INTERVAL_S, HOT_BYTES = 6, 0.005, 64 * KIB
MOST_SECONDS = 60.0


def _batch() -> Batch:
    return encode_batch(128 * KIB)


def _hot(visit: Visit) -> Values:
    batch = _batch()
    topic = visit.filled_topic(batch, visit.mib(HOT_MIB), kept=SHARED)
    leaders, size = visit.leaders(topic), visit.mib(HOT_MIB) * MIB
    moved, usage = visit.measure(lambda: transfer.fetch(leaders, topic, batch, size, FETCH_BYTES))
    return rate_values("consume_hot", moved, usage)


def _cold(visit: Visit) -> Values:
    batch = _batch()
    size = visit.mib(COLD_MIB)
    topic = visit.filled_topic(batch, size)
    leaders = visit.leaders(topic)
    drop_from_cache(visit.segment_files(topic))
    once = size * MIB - PARTITIONS * FETCH_BYTES
    moved, usage = visit.measure(lambda: transfer.fetch(leaders, topic, batch, once, FETCH_BYTES))
    return rate_values("consume_cold", moved, usage)


def _cold_beside_hot(visit: Visit) -> Values:
    batch = _batch()
    cold = visit.filled_topic(batch, visit.mib(COLD_MIB))
    hot = visit.filled_topic(batch, visit.mib(HOT_MIB), kept=SHARED)
    port = visit.broker.port
    drop_from_cache(visit.segment_files(cold))
    scan = ScanLane(port, cold, PARTITIONS, FETCH_BYTES, len(batch.data), batch.records)
    readers = [
        FetchLane(port, hot, number % PARTITIONS, HOT_BYTES, HOT_INTERVAL_S) for number in range(HOT_LANES)
    ]
    with closing([scan, *readers]):
        run, usage = visit.measure(lambda: run_lanes([*readers, scan], MOST_SECONDS, until=scan))
    times = summarise([each for lane in run.times_us[:-1] for each in lane])
    return {
        "cold_beside_hot.worst": times.greatest / 1000,
        "cold_beside_hot.p99": times.p99 / 1000,
        "cold_beside_hot.p50": times.p50 / 1000,
        "cold_beside_hot.rate": scan.moved / MIB / usage.seconds,
    }


SUITE = Suite(
    "consume",
    "Consuming hot and cold",
    Stage.ONE,
    (
        Workload("consume hot", rate_metrics("consume_hot", "consume from the page cache"), _hot),
        Workload("consume cold", rate_metrics("consume_cold", "consume from the disk"), _cold),
        Workload(
            "a cold reader beside hot ones",
            (
                Metric(
                    "cold_beside_hot.worst",
                    "a cold reader beside hot ones: their worst stall",
                    "ms",
                    Better.LOWER,
                ),
                Metric("cold_beside_hot.p99", "a cold reader beside hot ones: their p99", "ms", Better.LOWER),
                Metric("cold_beside_hot.p50", "a cold reader beside hot ones: their p50", "ms", Better.LOWER),
                Metric(
                    "cold_beside_hot.rate", "a cold reader beside hot ones: its rate", "MiB/s", Better.HIGHER
                ),
            ),
            _cold_beside_hot,
        ),
    ),
    f"1 MiB fetches of 128 KiB batches. Cold: the segments are synced and dropped from the page cache first. Beside a "
    f"cold reader {HOT_LANES} connections each fetch {HOT_BYTES // KIB} KiB of cached data every "
    f"{HOT_INTERVAL_S * 1000:.0f} ms.",
)
