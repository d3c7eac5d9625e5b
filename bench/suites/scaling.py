"""One Landline process, two on the same host, one Kafka JVM: all with the same two client processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection as Pipe
from typing import Self

from bench.client import transfer
from bench.client.batches import Batch, encode_batch
from bench.pages import touch_free_memory
from bench.results import Better, Metric
from bench.targets import Target
from bench.visit import IN_FLIGHT, Visit, await_leaders
from bench.workload import Stage, Suite, Values, Workload
from tests.support.processes import MIB
from tests.support.topics import create_topic

CLIENTS = 2
PARTITIONS = 4
WARM_UP_MIB = 512
LOAD_MIB = 512
KIB = 1024
CLIENT_TIMEOUT_S = 120.0


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
            with Clients(ports, topic, batch, size * MIB) as clients:
                (moved, seconds), usage = visit.measure(clients.run, brokers)
        return {
            f"{key}.rate": moved / MIB / seconds,
            f"{key}.cpu": usage.broker.total / (moved / MIB / KIB),
        }


class Clients:
    """Processes that each write to their share of the partitions, and begin together."""

    def __init__(self, ports: Mapping[int, int], topic: str, batch: Batch, total_bytes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Pipe] = []
        self._processes = []
        for number in range(CLIENTS):
            share = {partition: port for partition, port in ports.items() if partition % CLIENTS == number}
            ours, theirs = context.Pipe()
            process = context.Process(
                target=write_share, args=(theirs, share, topic, batch, total_bytes // CLIENTS), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        for pipe in self._pipes:
            self._receive(pipe)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def run(self) -> tuple[int, float]:
        """Lets all begin; returns the bytes that were written and the seconds until the last was done."""
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send("go")
        moved = sum(self._receive(pipe) for pipe in self._pipes)
        seconds = time.perf_counter() - start
        for process in self._processes:
            process.join(CLIENT_TIMEOUT_S)
        return moved, seconds

    @staticmethod
    def _receive(pipe: Pipe) -> int:
        if not pipe.poll(CLIENT_TIMEOUT_S):
            raise TimeoutError("a client process did not answer")
        return int(pipe.recv())


def write_share(pipe: Pipe, ports: Mapping[int, int], topic: str, batch: Batch, total_bytes: int) -> None:
    """A client's process: says that it is there, waits for the word, writes, says how much."""
    pipe.send(0)
    pipe.recv()
    pipe.send(transfer.produce(ports, topic, batch, total_bytes, IN_FLIGHT))


def _two_or_one(visit: Visit) -> Values:
    """What an operator has: ``brokers_per_host`` two of Landline, one JVM of Kafka."""
    return _measure(visit, 2 if visit.target is Target.LANDLINE else 1, "scaling_host")


def _metrics(key: str, title: str) -> tuple[Metric, ...]:
    return (
        Metric(f"{key}.rate", title, "MiB/s", Better.HIGHER),
        Metric(f"{key}.cpu", f"{title}: CPU of all brokers", "CPU s/GiB", Better.LOWER),
    )


SUITE = Suite(
    "scaling",
    "brokers_per_host",
    Stage.OWN,
    (
        Workload(
            "two Landline processes, one JVM",
            _metrics("scaling_host", "produce 16 KiB batches: two Landline processes, one Kafka JVM"),
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
