"""Compressed batches: the cost of records that the broker need not inspect."""

from __future__ import annotations

from bench.client import transfer
from bench.client.batches import Codec, encode_batch
from bench.pages import touch_free_memory
from bench.results import Better, Metric
from bench.visit import IN_FLIGHT, Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from rig.processes import MIB

BATCH_BYTES = 128 * 1024
RECORDS_MIB = 512
SMALL_BYTES = 16 * 1024
SMALL_MIB = 256
US_PER_S = 1e6


def _compressed(codec: Codec) -> Workload:
    key = f"produce_{codec.name.lower()}"
    title = f"produce 128 KiB batches, {codec.name.lower()}"
    batch = encode_batch(BATCH_BYTES, codec=codec)
    squeezed = len(batch.data) / batch.record_bytes

    def run(visit: Visit) -> Values:
        size = visit.mib(RECORDS_MIB) * MIB
        topic = visit.fresh_topic()
        leaders = visit.leaders(topic)
        touch_free_memory(round(size * squeezed / MIB))
        moved, usage = visit.measure(
            lambda: transfer.produce(leaders, topic, batch, round(size * squeezed), IN_FLIGHT)
        )
        return rate_values(key, moved / squeezed, usage)

    return Workload(title, rate_metrics(key, title), run)


def _small(codec: Codec) -> Workload:
    name = codec.name.lower()
    key, title = f"produce_16k_{name}", f"produce 16 KiB batches, {name}"
    batch = encode_batch(SMALL_BYTES, codec=codec)

    def run(visit: Visit) -> Values:
        size = round(visit.mib(SMALL_MIB) * MIB * len(batch.data) / batch.record_bytes)
        topic = visit.fresh_topic()
        leaders = visit.leaders(topic)
        touch_free_memory(size // MIB + 1)
        moved, usage = visit.measure(lambda: transfer.produce(leaders, topic, batch, size, IN_FLIGHT))
        requests = moved / len(batch.data)
        return {
            f"{key}.rate": requests / usage.seconds,
            f"{key}.cpu": usage.broker.total / requests * US_PER_S,
        }

    metrics = (
        Metric(f"{key}.rate", title, "requests/s", Better.HIGHER),
        Metric(f"{key}.cpu", f"{title}: broker CPU", "µs/request", Better.LOWER),
    )
    return Workload(title, metrics, run)


SUITE = Suite(
    "compression",
    "Compressed batches",
    Stage.ONE,
    (_compressed(Codec.LZ4), _compressed(Codec.ZSTD), *[_small(codec) for codec in Codec]),
    "Batches of 128 KiB and of 16 KiB before compression, acks=all; MiB are counted before compression. Kafka "
    "decompresses every batch to validate its records; Landline looks at the first one "
    "(`landline.produce.validation=first`, the default).",
)
