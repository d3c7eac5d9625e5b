"""Reading data that is in the page cache, data that is not, and the effect of a cold reader on others."""

from __future__ import annotations

from collections.abc import Mapping

from bench import goals
from bench.client import transfer
from bench.client.batches import Batch, encode_batch
from bench.client.lanes import FetchLane, LanesRun, closing, run_lanes
from bench.client.process import ClientProcess
from bench.percentiles import summarise
from bench.results import Better, Metric
from bench.suites.throughput import FETCH_BYTES, HOT_MIB, KIB, SHARED
from bench.visit import PARTITIONS, Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from rig.page_cache import drop_from_cache
from rig.processes import MIB
from rig.wait import last_for

COLD_MIB = 768
HOT_LANES, HOT_INTERVAL_S, HOT_BYTES = 6, 0.005, 64 * KIB
MOST_SECONDS = 60.0
# Landline takes what was written within the last two seconds for cached, as it is on a host at work.
OLD_AFTER_S = 3.0


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
    last_for(OLD_AFTER_S)
    drop_from_cache(visit.segment_files(topic))
    once = size * MIB - PARTITIONS * FETCH_BYTES
    moved, usage = visit.measure(lambda: transfer.fetch(leaders, topic, batch, once, FETCH_BYTES))
    return rate_values("consume_cold", moved, usage)


def _cold_beside_hot(visit: Visit) -> Values:
    """The cold reader is another program, so it has its own process."""
    batch = _batch()
    size = visit.mib(COLD_MIB)
    cold = visit.filled_topic(batch, size)
    hot = visit.filled_topic(batch, visit.mib(HOT_MIB), kept=SHARED)
    port = visit.broker.port
    readers = [
        FetchLane(port, hot, number % PARTITIONS, HOT_BYTES, HOT_INTERVAL_S) for number in range(HOT_LANES)
    ]
    with ClientProcess(scan, visit.leaders(cold), cold, batch, size * MIB) as scanner, closing(readers):

        def read() -> tuple[LanesRun, int]:
            scanner.go()
            run = run_lanes(readers, MOST_SECONDS, until=lambda: scanner.done)
            return run, scanner.result()

        last_for(OLD_AFTER_S)
        drop_from_cache(visit.segment_files(cold))
        (run, moved), usage = visit.measure(read)
    times = summarise(run.all_times_us)
    return {
        "cold_beside_hot.worst": times.greatest / 1000,
        "cold_beside_hot.p99": times.p99 / 1000,
        "cold_beside_hot.p50": times.p50 / 1000,
        "cold_beside_hot.rate": moved / MIB / usage.seconds,
    }


def scan(leaders: Mapping[int, int], topic: str, batch: Batch, total_bytes: int) -> int:
    """Reads a topic's partitions once, one after the other, from their beginning almost to their end; returns
    the bytes.
    """
    once = total_bytes // len(leaders) - FETCH_BYTES
    return sum(
        transfer.fetch({partition: port}, topic, batch, once, FETCH_BYTES)
        for partition, port in leaders.items()
    )


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
                Metric(
                    "cold_beside_hot.p99",
                    "a cold reader beside hot ones: their p99",
                    "ms",
                    Better.LOWER,
                    goals.NOT_BELOW,
                ),
                Metric("cold_beside_hot.p50", "a cold reader beside hot ones: their p50", "ms", Better.LOWER),
                Metric(
                    "cold_beside_hot.rate", "a cold reader beside hot ones: its rate", "MiB/s", Better.HIGHER
                ),
            ),
            _cold_beside_hot,
        ),
    ),
    f"1 MiB fetches of 128 KiB batches. Cold: the segments are {OLD_AFTER_S:.0f} s old, synced, and dropped from the "
    f"page cache. Beside a cold reader, which is a process of its own, {HOT_LANES} connections each fetch "
    f"{HOT_BYTES // KIB} KiB of cached data every {HOT_INTERVAL_S * 1000:.0f} ms.",
)
