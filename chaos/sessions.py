"""Measures how short a ZooKeeper session timeout may be: ``python -m chaos.sessions`` on an otherwise
idle machine.

Runs an ensemble of three servers that sync their writes, and one broker for each timeout in question, all on
this machine. Producers send as fast as they can, consumers read along, and writers that sync keep the queue
of the disk full, which the ensemble also uses. If a broker loses its session under this load, its timeout is
too short for such a host.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import click
from confluent_kafka import Consumer, KafkaError, Producer

from bench import machine
from chaos.narrow_disk import narrow_disk
from rig.landline_broker import LandlineBroker
from rig.ports import free_port
from rig.topics import create_topic
from rig.wait import last_for
from rig.zookeeper import ZooKeeperServer

TOPIC = "full-load"
PARTITIONS = 12
SILENCE = "landline_zookeeper_longest_silence_ms"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One broker: its timeout, the longest silence, and how often it lost its connection and its session."""

    timeout_ms: int
    silence_ms: int
    connections_lost: int
    sessions_lost: int


class EnsembleServer(ZooKeeperServer):
    """A member of an ensemble on loopback, with the role's settings; it syncs its writes."""

    def __init__(self, data_dir: Path, number: int, members: Sequence[tuple[int, int]]) -> None:
        super().__init__(data_dir)
        self._number = number
        self._members = members

    def _properties(self) -> str:
        data = self.data_dir / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        lines = [line for line in super()._properties().splitlines() if not line.startswith("forceSync")]
        lines += ["initLimit=40", "syncLimit=10", "minSessionTimeout=1000"]
        lines += [f"server.{n}=127.0.0.1:{peer}:{vote}" for n, (peer, vote) in enumerate(self._members, 1)]
        return "".join(f"{line}\n" for line in lines)

    def start_nowait(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._config.write_text(self._properties())
        self._process.start()

    def await_ready(self) -> None:
        self._process.wait_ready(self.is_ready, 60.0)


@contextmanager
def ensemble(directory: Path, count: int = 3) -> Iterator[str]:
    """Runs an ensemble and yields its connect string."""
    members = [(free_port(), free_port()) for _ in range(count)]
    servers = [EnsembleServer(directory / f"zookeeper-{n}", n, members) for n in range(1, count + 1)]
    try:
        for server in servers:
            server.start_nowait()
        for server in servers:
            server.await_ready()
        yield ",".join(server.connect_string for server in servers)
    finally:
        for server in servers:
            server.kill()


def produce(bootstrap: str) -> None:
    """Sends endlessly, as fast as possible."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all", "log_level": 0})
    value = random.Random(1).randbytes(1000)
    while True:
        try:
            producer.produce(TOPIC, value)
        except BufferError:
            producer.poll(0.05)


def consume(bootstrap: str, group: str) -> None:
    """Reads endlessly."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "latest",
        "log_level": 0,
    }
    consumer = Consumer(config)
    consumer.subscribe([TOPIC])
    while True:
        for message in consumer.consume(1000, 1.0):
            error = message.error()
            if error is not None and error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
                break


def fill_disk_queue(directory: str, number: int, waited_s: Synchronized[float]) -> None:
    """Writes and syncs endlessly, to a file that does not grow; ``waited_s`` is how long it waited for
    the disk.
    """
    fd = os.open(Path(directory) / f"writer-{number}", os.O_RDWR | os.O_CREAT, 0o600)
    data = os.urandom(2 * MIB)
    position = 0
    while True:
        os.pwrite(fd, data, position)
        begin = time.monotonic()
        os.fdatasync(fd)
        waited_s.value += time.monotonic() - begin
        position = (position + len(data)) % (256 * MIB)


def measure(
    seconds: float, timeouts_ms: Sequence[int], directory: Path, writers: int
) -> tuple[list[Row], float]:
    """Runs everything for this long; also returns how many of the writers waited for the disk on average."""
    with ExitStack() as stack:
        zk_connect = stack.enter_context(ensemble(directory))
        brokers = []
        for number, timeout_ms in enumerate(timeouts_ms, 1):
            config: dict[str, object] = {
                "zookeeper.session.timeout.ms": timeout_ms,
                "log.segment.bytes": 16 * MIB,
                "log.retention.bytes": 32 * MIB,
                "log.retention.check.interval.ms": 2000,
                "log.segment.delete.delay.ms": 1000,
                "offsets.topic.replication.factor": min(3, len(timeouts_ms)),
                "min.insync.replicas": 1,
            }
            broker = LandlineBroker(number, zk_connect, directory / f"broker-{number}", config)
            brokers.append(stack.enter_context(broker))
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        create_topic(bootstrap, TOPIC, PARTITIONS, min(3, len(brokers)))
        spawn = multiprocessing.get_context("spawn")
        jobs = [spawn.Process(target=produce, args=(bootstrap,), daemon=True) for _ in range(2)]
        jobs += [spawn.Process(target=consume, args=(bootstrap, f"g{n}"), daemon=True) for n in range(2)]
        waits = [spawn.Value("d", 0.0) for _ in range(writers)]
        jobs += [
            spawn.Process(target=fill_disk_queue, args=(str(directory), n, waited), daemon=True)
            for n, waited in enumerate(waits)
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            stack.callback(job.kill)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            last_for(min(30.0, max(until - time.monotonic(), 0.0)))
            print(
                [_row(broker, timeout) for broker, timeout in zip(brokers, timeouts_ms, strict=True)],
                flush=True,
            )
        rows = [_row(broker, timeout) for broker, timeout in zip(brokers, timeouts_ms, strict=True)]
        return rows, sum(waited.value for waited in waits) / seconds


def _row(broker: LandlineBroker, timeout_ms: int) -> Row:
    log = broker.log_text()
    return Row(
        timeout_ms,
        _metric(broker, SILENCE),
        log.count(" zookeeper_connection_lost"),
        log.count(" zookeeper_session_expired"),
    )


def _metric(broker: LandlineBroker, name: str) -> int:
    try:
        with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
    except OSError:
        return -1
    return int(float(next(line.split()[1] for line in page.splitlines() if line.startswith(f"{name} "))))


@click.command()
@click.option("--seconds", default=600.0, show_default=True)
@click.option(
    "--timeouts", default="1000,2000,3000,4000,6000", show_default=True, help="One broker each, ms."
)
@click.option("--writers", default=4, show_default=True, help="Processes that write and sync without end.")
@click.option("--disk-limit", default=0.0, help="MB/s that all of it may write together; 0: no limit.")
def main(seconds: float, timeouts: str, writers: int, disk_limit: float) -> None:
    """Prints a Markdown table."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sessions-")))
        if disk_limit:
            stack.enter_context(narrow_disk(directory, round(disk_limit * 1_000_000)))
        rows, waiting = measure(seconds, [int(each) for each in timeouts.split(",")], directory, writers)
    limit = f"{disk_limit:g} MB/s" if disk_limit else "no limit of the disk"
    print(f"\n{seconds:.0f} s, {limit}; {waiting:.1f} of {writers} writers waited for the disk at a time")
    print("".join(f"{key}: {value}\n" for key, value in machine.description().items()))
    print("| time-out, s | longest silence, s | connections lost | sessions lost |")
    print("|---|---|---|---|")
    for row in rows:
        lost = f"{row.connections_lost} | {row.sessions_lost}"
        print(f"| {row.timeout_ms / 1000:g} | {row.silence_ms / 1000:.2f} | {lost} |")


if __name__ == "__main__":
    main()
