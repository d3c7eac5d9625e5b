"""One Landline process, two on the same host, one Kafka JVM: all with the same two client processes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from bench import goals
from bench.client import transfer
from bench.client.batches import Batch, encode_batch
from bench.client.process import ClientProcess
from bench.machine import Usage
from bench.pages import touch_free_memory
from bench.results import Better, Goal, Metric
from bench.targets import Target
from bench.visit import IN_FLIGHT, Visit, await_leaders
from bench.workload import Stage, Suite, Values, Workload
from rig.brokers import BrokerProcess
from rig.processes import MIB
from rig.topics import create_topic

CLIENTS = 2
PARTITIONS = 4
WARM_UP_MIB = 512
LOAD_MIB = 512
KIB = 1024


def _measure(visit: Visit, brokers_count: int, key: str) -> Values:
    batch = encode_batch(16 * KIB)
    with visit.new_brokers(brokers_count) as brokers:
        for broker in brokers:
            broker.start_nowait()
        for broker in brokers:
            broker.wait_ready()
        bootstrap = brokers[0].bootstrap
        for topic, mib in (("warm", WARM_UP_MIB), ("load", LOAD_MIB)):
            create_topic(bootstrap, topic, PARTITIONS)
            ports = await_leaders(brokers[0], topic, PARTITIONS)
            size = visit.mib(mib)
            touch_free_memory(size)
            (moved, seconds), usage = _write(
                visit, brokers, _shares(ports), topic, batch=batch, total_bytes=size * MIB
            )
        return {
            f"{key}.rate": moved / MIB / seconds,
            f"{key}.cpu": usage.broker.total / (moved / MIB / KIB),
        }


def _shares(ports: Mapping[int, int]) -> list[dict[int, int]]:
    """Each client's partitions."""
    return [
        {partition: port for partition, port in ports.items() if partition % CLIENTS == number}
        for number in range(CLIENTS)
    ]


def _write(
    visit: Visit,
    brokers: Sequence[BrokerProcess],
    shares: Sequence[Mapping[int, int]],
    topic: str,
    *,
    batch: Batch,
    total_bytes: int,
) -> tuple[tuple[int, float], Usage]:
    """A process for each share; all start together.

    Returns the number of bytes written, the seconds until the last process was done, and the resource usage.
    """
    with ExitStack() as stack:
        each = total_bytes // len(shares)
        clients = [
            stack.enter_context(ClientProcess(transfer.produce, share, topic, batch, each, IN_FLIGHT))
            for share in shares
        ]

        def run() -> tuple[int, float]:
            start = time.perf_counter()
            for client in clients:
                client.go()
            moved = sum(client.result() for client in clients)
            return moved, time.perf_counter() - start

        return visit.measure(run, brokers)


def _two_or_one(visit: Visit) -> Values:
    """A typical host: two brokers of Landline (``brokers_per_host``), one JVM of Kafka."""
    return _measure(visit, 2 if visit.target.kind is Target.LANDLINE else 1, "scaling_host")


def _metrics(key: str, title: str, goal: Goal | None = None) -> tuple[Metric, ...]:
    return (
        Metric(f"{key}.rate", title, "MiB/s", Better.HIGHER, goal),
        Metric(f"{key}.cpu", f"{title}: CPU of all brokers", "CPU s/GiB", Better.LOWER),
    )


SUITE = Suite(
    "scaling",
    "brokers_per_host",
    Stage.OWN,
    (
        Workload(
            "two Landline processes, one JVM",
            _metrics(
                "scaling_host",
                "produce 16 KiB batches: two Landline processes, one Kafka JVM",
                goals.RATE_16_KIB_OF_TWO,
            ),
            _two_or_one,
        ),
        Workload(
            "one Landline process",
            _metrics("scaling_one", "produce 16 KiB batches: one Landline process"),
            lambda visit: _measure(visit, 1, "scaling_one"),
            targets=frozenset({Target.LANDLINE}),
        ),
    ),
    f"{CLIENTS} client processes write to {PARTITIONS} partitions, acks=all, on the brokers' own CPUs.",
)
