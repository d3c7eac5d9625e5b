"""Compressed batches: what a broker does with records that it need not look into."""

from __future__ import annotations

from bench.client import transfer
from bench.client.batches import Codec, encode_batch
from bench.pages import touch_free_memory
from bench.visit import IN_FLIGHT, Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from tests.support.processes import MIB

BATCH_BYTES = 128 * 1024
RECORDS_MIB = 512


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


SUITE = Suite(
    "compression",
    "Compressed batches",
    Stage.ONE,
    (_compressed(Codec.LZ4), _compressed(Codec.ZSTD)),
    "Batches of 128 KiB before compression, acks=all; MiB are counted before compression. Kafka decompresses every "
    "batch to validate its records; Landline checks its header and checksum.",
)
