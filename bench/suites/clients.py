"""The usual clients: Kafka's own in Java, and librdkafka through kcat."""

from __future__ import annotations

from collections.abc import Mapping

from bench import goals
from bench.client import tools
from bench.client.batches import encode_batch
from bench.pages import touch_free_memory
from bench.suites.throughput import HOT_MIB, KIB, SHARED
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload, rate_metrics, rate_values
from rig.processes import MIB

RECORDS_PER_MIB = MIB // tools.LINE_BYTES
LINES_MIB = 512


def _java_producer(key: str, title: str, mib: int, props: Mapping[str, object]) -> Workload:
    def run(visit: Visit) -> Values:
        size = visit.mib(mib)
        topic = visit.fresh_topic()
        touch_free_memory(size)
        rate, usage = visit.measure(
            lambda: tools.producer_performance(visit.bootstrap, topic, size * RECORDS_PER_MIB, props)
        )
        return rate_values(key, size * MIB, usage, rate)

    return Workload(title, rate_metrics(key, title, goals.NOT_BELOW, goals.AHEAD), run)


def _filled(visit: Visit) -> tuple[str, int]:
    """A topic of three equal partitions, and how many MiB of it are to be read.

    Not all of it: a client has one fetch in flight per broker. The end of the last partition would wait
    behind fetches of the others' ends, which last for fetch.max.wait.ms. How often that happens is chance.
    """
    size = visit.mib(HOT_MIB)
    return visit.filled_topic(encode_batch(128 * KIB), size, kept=SHARED), size * 3 // 4


def _java_consumer(visit: Visit) -> Values:
    topic, size = _filled(visit)
    rate, usage = visit.measure(
        lambda: tools.consumer_performance(visit.bootstrap, topic, size * RECORDS_PER_MIB)
    )
    return rate_values("java_consumer", size * MIB, usage, rate)


def _kcat_producer(visit: Visit) -> Values:
    size = visit.mib(LINES_MIB)
    topic = visit.fresh_topic()
    touch_free_memory(size)
    _, usage = visit.measure(lambda: tools.kcat_produce(visit.bootstrap, topic, visit.lines))
    return rate_values("librdkafka_producer", size * MIB, usage)


def _kcat_consumer(visit: Visit) -> Values:
    topic, size = _filled(visit)
    _, usage = visit.measure(lambda: tools.kcat_consume(visit.bootstrap, topic, size * RECORDS_PER_MIB))
    return rate_values("librdkafka_consumer", size * MIB, usage)


SUITE = Suite(
    "clients",
    "Kafka's Java clients and librdkafka",
    Stage.ONE,
    (
        _java_producer("java_producer", "ProducerPerformance, defaults", 384, {}),
        _java_producer(
            "java_producer_128k",
            "ProducerPerformance, 128 KiB, linger 5 ms",
            768,
            {"batch.size": 131072, "linger.ms": 5},
        ),
        Workload(
            "ConsumerPerformance",
            rate_metrics("java_consumer", "ConsumerPerformance", goals.NOT_BELOW, goals.AHEAD),
            _java_consumer,
        ),
        Workload(
            "librdkafka producer, 128 KiB, linger 5 ms",
            rate_metrics(
                "librdkafka_producer",
                "librdkafka producer, 128 KiB, linger 5 ms",
                goals.NOT_BELOW,
                goals.AHEAD,
            ),
            _kcat_producer,
        ),
        Workload(
            "librdkafka consumer",
            rate_metrics("librdkafka_consumer", "librdkafka consumer", goals.NOT_BELOW, goals.AHEAD),
            _kcat_consumer,
        ),
    ),
    "Kafka 3.9.1's own performance tools with their scripts' JVM flags, kcat for librdkafka; 1 KiB records, 3 "
    "partitions, acks=all. The Java tools' rates are those they tell, without the start of their JVM.",
)
