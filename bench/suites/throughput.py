"""Throughput: prepared batches of three sizes in, 1 MiB fetches out beside a bare sendfile loop."""

from __future__ import annotations

import statistics
from functools import reduce
from operator import add

from bench import goals
from bench.client import transfer
from bench.client.batches import encode_batch
from bench.client.ceiling import sendfile_rate
from bench.pages import touch_free_memory
from bench.results import Better, Goal, Metric
from bench.targets import Target
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from rig.processes import MIB

KIB = 1024
FETCH_BYTES = MIB
HOT_MIB = 1024
FETCH_MIB = 3072
SLICES = 3
SHARED = "bench-hot"
ACKS = {1: "1", -1: "all"}


def produce_workload(
    kib: int,
    acks: int,
    mib: int,
    rate: Goal | None,
    cpu: Goal | None,
    *,
    by: str = "",
    targets: frozenset[Target] = frozenset(Target),
) -> Workload:
    """Writes batches of a size. ``by`` tells it from others of that size, in front of its title and key."""
    size = f"{kib} KiB" if kib < 1024 else "1 MiB"
    key = f"{by.lower()}produce_{kib}k_acks_{ACKS[acks]}".replace(" ", "_")
    title = f"{by}produce {size} batches, acks={ACKS[acks]}"
    batch = encode_batch(kib * KIB)

    def run(visit: Visit) -> Values:
        size = visit.mib(mib)
        topic = visit.fresh_topic()
        touch_free_memory(size)
        moved, usage = visit.measure(lambda: visit.produce(topic, batch, size, acks=acks))
        return rate_values(key, moved, usage)

    return Workload(title, rate_metrics(key, title, rate, cpu), run, targets=targets)


def _fetch(visit: Visit) -> Values:
    """In slices, each beside a slice of the bare loop: neighbours change from second to second."""
    batch = encode_batch(128 * KIB)
    topic = visit.filled_topic(batch, visit.mib(HOT_MIB), kept=SHARED)
    leaders, file = visit.leaders(topic), visit.segment_files(topic)[0]
    answer_bytes = FETCH_BYTES // len(batch.data) * len(batch.data)
    slice_bytes = visit.mib(FETCH_MIB) * MIB // SLICES
    usages, moved, ceilings = [], 0, []
    for _ in range(SLICES):
        read, usage = visit.measure(lambda: transfer.fetch(leaders, topic, batch, slice_bytes, FETCH_BYTES))
        usages.append(usage)
        moved += read
        ceiling, _ = visit.measure(lambda: sendfile_rate(file, answer_bytes, slice_bytes), ())
        ceilings.append(ceiling / MIB)
    values = rate_values("fetch_1m", moved, reduce(add, usages))
    bare = statistics.harmonic_mean(ceilings)
    return {**values, "fetch_1m.ceiling": bare, "fetch_1m.share": values["fetch_1m.rate"] / bare}


FETCH = Workload(
    "fetch 1 MiB",
    (
        *rate_metrics("fetch_1m", "fetch 1 MiB", None, goals.CPU_FETCH),
        Metric("fetch_1m.ceiling", "bare sendfile loop beside it", "MiB/s", Better.HIGHER, detail=True),
        Metric(
            "fetch_1m.share",
            "fetch 1 MiB to a bare sendfile loop",
            "ratio",
            Better.HIGHER,
            goals.SENDFILE_SHARE,
        ),
    ),
    _fetch,
    targets=frozenset(Target),
)
SUITE = Suite(
    "throughput",
    "Throughput, raw client",
    Stage.ONE,
    (
        produce_workload(16, -1, 512, goals.RATE_16_KIB, goals.CPU_16_KIB),
        produce_workload(16, 1, 512, goals.RATE_16_KIB, goals.CPU_16_KIB),
        produce_workload(128, -1, 1024, goals.RATE_128_KIB, goals.CPU_128_KIB),
        produce_workload(128, 1, 1024, goals.RATE_128_KIB, goals.CPU_128_KIB),
        produce_workload(1024, -1, 1024, None, None),
        produce_workload(1024, 1, 1024, None, None),
        FETCH,
    ),
    "Prepared batches of 1 KiB records, 3 partitions, a connection each, 5 requests in flight; fetches one in flight.",
)
