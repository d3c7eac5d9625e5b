"""The cost of thousands of partitions: to create them, to stop, to start cleanly and after a kill, to
fail over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import goals
from bench.client.batches import encode_batch
from bench.client.connection import acknowledged, leaders
from bench.client.producing import Producing
from bench.client.requests import RawClientError, produce_request
from bench.results import Better, Metric
from bench.targets import Target
from bench.visit import Visit, pause
from bench.workload import Stage, Suite, Values, Workload
from rig.brokers import BrokerProcess
from rig.topics import isr_sizes
from rig.wait import wait_until

COUNTS = (1_000, 3_000, 10_000)
TOPIC = "many"
SAMPLES = 20
# A cell that takes longer is shown as failed, with this limit.
LIMIT_S = 180.0
PROBE_INTERVAL_S = 0.02
REPLICAS = 3
DISK_MIB = 40 << 10  # sparse; space for the inodes


def _one_broker(count: int, visit: Visit) -> Values:
    """Creates, stops, starts, kills, starts. Each ends when a sample of the partitions acknowledges
    a record.
    """
    partitions = _scaled(count, visit)
    config = {"controlled.shutdown.enable": "false"}
    with visit.new_brokers(config=config, disk_mib=DISK_MIB) as (broker,):
        broker.start()
        begin = time.perf_counter()
        _create(broker, partitions, None)
        _await_served([broker], partitions, begin)
        created = time.perf_counter() - begin
        begin = time.perf_counter()
        broker.stop(LIMIT_S)
        stopped = time.perf_counter() - begin
        clean = _timed_start(broker, partitions)
        broker.kill()
        visit.factory.forget_session(broker)
        killed = _timed_start(broker, partitions)
        return {
            f"many-{count}.create": created,
            f"many-{count}.stop": stopped,
            f"many-{count}.clean": clean,
            f"many-{count}.killed": killed,
        }


def _failover(count: int, visit: Visit) -> Values:
    """One broker of three leads all. It is killed, and its session ended, so that the figure includes
    no timeout.
    """
    partitions = _scaled(count, visit)
    with visit.new_brokers(REPLICAS, disk_mib=DISK_MIB) as brokers:
        for broker in brokers:
            broker.start_nowait()
        for broker in brokers:
            broker.wait_ready()
        first, *others = brokers
        ids = [broker.broker_id for broker in brokers]
        begin = time.perf_counter()
        _create(first, partitions, [ids] * partitions)
        _await_served([first], partitions, begin)
        _await_in_sync(others[0])
        with Producing(first.bootstrap, TOPIC, _sample(partitions)) as client:
            client.await_all(LIMIT_S)
            first.kill()
            client.mark()
            begin = time.perf_counter()
            visit.factory.forget_session(first)
            _await_served(others, partitions, begin)
            served = time.perf_counter() - begin
            return {f"many-{count}.failover": served, f"many-{count}.client": client.await_all(LIMIT_S)}


def _await_in_sync(broker: BrokerProcess) -> None:
    """Waits until every replica is in sync, according to ``broker``."""
    wait_until(
        lambda: set(isr_sizes(broker.bootstrap, TOPIC).values()) == {REPLICAS},
        LIMIT_S,
        interval=0.5,
        what=f"all replicas of {TOPIC} are in sync",
    )


def _scaled(count: int, visit: Visit) -> int:
    return max(SAMPLES, round(count * min(1.0, visit.scale)))


def _sample(partitions: int) -> set[int]:
    """A sample from the whole topic, including the last partition."""
    return {partitions - 1 - n * partitions // SAMPLES for n in range(SAMPLES)}


def _create(broker: BrokerProcess, partitions: int, assignment: list[list[int]] | None) -> None:
    options = {"replication_factor": 1} if assignment is None else {"replica_assignment": assignment}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, partitions, **options)], request_timeout=LIMIT_S)
    made[TOPIC].result(LIMIT_S)


def _timed_start(broker: BrokerProcess, partitions: int) -> float:
    begin = time.perf_counter()
    broker.start_nowait()
    _await_served([broker], partitions, begin)
    return time.perf_counter() - begin


def _await_served(brokers: Sequence[BrokerProcess], partitions: int, begin: float) -> None:
    """Waits until a sample of the partitions, including the last, acknowledges a record each."""
    batch = encode_batch(1)
    waiting = _sample(partitions)
    while waiting:
        if time.perf_counter() - begin > LIMIT_S:
            raise TimeoutError(f"{len(waiting)} of {SAMPLES} partitions did not serve within {LIMIT_S:.0f} s")
        try:
            ports = leaders(brokers[-1].port, TOPIC)
            for partition in sorted(waiting, reverse=True):
                acknowledged(ports[partition], TOPIC, produce_request(TOPIC, partition, batch))
                waiting.discard(partition)
        except (OSError, RawClientError, KeyError):
            pause(PROBE_INTERVAL_S)


def _workload(
    title: str, count: int, run: Callable[[int, Visit], Values], *figures: tuple[str, str]
) -> Workload:
    metrics = tuple(
        Metric(
            f"many-{count}.{key}",
            f"{count:,} partitions: {what}",
            "s",
            Better.LOWER,
            goals.MANY_PARTITIONS_S.get((count, key), goals.NOT_BELOW),
        )
        for key, what in figures
    )
    # KRaft stores its metadata elsewhere and has no session to end: another comparison.
    targets = frozenset({Target.LANDLINE, Target.KAFKA})
    return Workload(title, metrics, partial(run, count), repeats=False, targets=targets)


SUITE = Suite(
    "many-partitions",
    "Thousands of partitions: create, stop, start, fail over",
    Stage.OWN,
    tuple(
        workload
        for count in COUNTS
        for workload in (
            _workload(
                f"{count:,} partitions on one broker",
                count,
                _one_broker,
                ("create", "created"),
                ("stop", "stopped"),
                ("clean", "start after a clean stop"),
                ("killed", "start after a kill"),
            ),
            _workload(
                f"failover of {count:,} partitions with three replicas",
                count,
                _failover,
                ("failover", "failover, once the session has ended"),
                ("client", "the same, until a librdkafka producer writes on"),
            ),
        )
    ),
    f"One topic, on a new file system (as root). Each ends when {SAMPLES} partitions all over it have acknowledged a "
    f"record; what takes longer than {LIMIT_S:.0f} s is a failure. Sessions of killed brokers are ended by hand, so no "
    "time-out of ZooKeeper's is in the figures; the producer has its defaults, and writes to the same ones before, "
    "meanwhile and after.",
)
