"""One visit of one target: its brokers, its topics, and the cost of runs. The interface for workloads."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bench import machine, pages
from bench.client import transfer
from bench.client.batches import Batch
from bench.client.connection import serving_leaders
from bench.client.tls import ClientTls
from bench.machine import Usage
from bench.targets import Factory, Target, TlsListener
from rig.brokers import BrokerProcess
from rig.disks import SmallDisk, can_mount
from rig.processes import MIB, CpuSeconds
from rig.topics import create_topic, delete_topics
from rig.wait import wait_until

T = TypeVar("T")
GIB = 1024 * MIB
PARTITIONS = 3
IN_FLIGHT = 5
LEAST_MIB = 16
DELETION_TIMEOUT_S = 30.0
LEADERS_TIMEOUT_S = 60.0


class Visit:
    """The environment of a workload. ``foreign_cores`` is the highest of its measured runs since ``begin``.
    ``tls`` is the listener of the broker on the stage with TLS, and None on the others.
    """

    def __init__(self, factory: Factory, directory: Path, scale: float, lines: Path) -> None:
        self.factory = factory
        self.scale = scale
        self.lines = lines
        self.brokers: Sequence[BrokerProcess] = ()
        self.tls: TlsListener | None = None
        self.idle_rss_mib = 0.0
        self.foreign_cores = 0.0
        self._directory = directory
        self._topics: list[str] = []
        self._kept: dict[str, int] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._numbers = itertools.count(1)

    @property
    def target(self) -> Target:
        """The visited target."""
        return self.factory.target

    @property
    def broker(self) -> BrokerProcess:
        """The first broker of the stage."""
        return self.brokers[0]

    @property
    def bootstrap(self) -> str:
        """All brokers' addresses."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def mib(self, full: int) -> int:
        """How many MiB a load of ``full`` MiB moves at this scale."""
        return max(LEAST_MIB, round(full * self.scale))

    def seconds(self, full: float) -> float:
        """How long a load of ``full`` seconds lasts at this scale."""
        return max(1.0, full * self.scale)

    def begin(self, brokers: Sequence[BrokerProcess], tls: TlsListener | None = None) -> None:
        """Starts a stage with these brokers: there are no topics yet."""
        self.brokers, self.tls = brokers, tls
        self._topics, self._kept = [], {}

    def measure(
        self, work: Callable[[], T], brokers: Sequence[BrokerProcess] | None = None
    ) -> tuple[T, Usage]:
        """Runs ``work``; returns its result and its cost, with the CPU time of all brokers summed."""
        result, usage = machine.measure(work, lambda: _cpu_of(self.brokers if brokers is None else brokers))
        self.foreign_cores = max(self.foreign_cores, usage.foreign_cores)
        return result, usage

    def fresh_topic(
        self, partitions: int = PARTITIONS, replicas: int = 1, config: dict[str, str] | None = None
    ) -> str:
        """Creates a topic that is deleted when the workload ends."""
        topic = f"bench-{next(self._numbers)}"
        self._create(topic, partitions, replicas, config)
        self._topics.append(topic)  # a rejected one need not be deleted
        return topic

    def leaders(self, topic: str) -> dict[int, int]:
        """The port of each partition's leader, on the stage with TLS that of its TLS listener."""
        found = self._leaders[topic]
        return found if self.tls is None else dict.fromkeys(found, self.tls.port)

    def produce(self, topic: str, batch: Batch, mib: int, *, acks: int = -1) -> int:
        """Writes so many MiB to the topic, by TLS where there is TLS; returns the bytes."""
        return transfer.produce(
            self.leaders(topic), topic, batch, mib * MIB, IN_FLIGHT, acks=acks, tls=self._client_tls
        )

    def fetch(self, topic: str, batch: Batch, mib: int, max_bytes: int) -> int:
        """Reads so many MiB, likewise."""
        return transfer.fetch(self.leaders(topic), topic, batch, mib * MIB, max_bytes, tls=self._client_tls)

    @property
    def _client_tls(self) -> ClientTls | None:
        return None if self.tls is None else self.tls.client

    def filled_topic(self, batch: Batch, mib: int, *, kept: str = "") -> str:
        """Creates a topic and fills it with copies of ``batch``, unmeasured.

        ``kept``: workloads with the same name share one topic, which stays until the stage ends.
        """
        if kept and self._kept.get(kept, 0) >= mib:
            return kept
        topic = kept or self.fresh_topic()
        if kept:
            if kept in self._kept:
                delete_topics(self.bootstrap, [kept])
            self._create(kept, PARTITIONS, 1, None)
            self._kept[kept] = mib
        pages.touch_free_memory(mib)
        self.produce(topic, batch, mib)
        return topic

    def segment_files(self, topic: str, broker: BrokerProcess | None = None) -> list[Path]:
        """The segments of a topic on one broker's disk."""
        return sorted((broker or self.broker).log_dir.glob(f"{topic}-*/{(broker or self.broker).segments}"))

    def tidy(self) -> None:
        """Deletes what the workload created and waits until its pages are free."""
        topics, self._topics = self._topics, []
        if topics and all(broker.process.running for broker in self.brokers):
            delete_topics(self.bootstrap, topics)
            wait_until(lambda: not self._leftovers(topics), DELETION_TIMEOUT_S, what="topics are deleted")

    @contextmanager
    def new_brokers(
        self, count: int = 1, config: Mapping[str, object] | None = None, *, disk_mib: int = 0
    ) -> Iterator[list[BrokerProcess]]:
        """The workload's own brokers, prepared and not started; at the end killed, and their
        directory removed.

        ``disk_mib``: on their own new file system, if one can be mounted.
        """
        with self.new_directory(disk_mib) as directory:
            brokers = self.factory.brokers(directory, count, config or {})
            with killed_in_the_end(brokers):
                yield brokers

    @contextmanager
    def new_secured(self, config: Mapping[str, object]) -> Iterator[tuple[BrokerProcess, TlsListener]]:
        """The same for one broker that has a TLS listener as well."""
        with self.new_directory() as directory:
            broker, tls = self.factory.secured(directory, config)
            with killed_in_the_end([broker]):
                yield broker, tls

    @contextmanager
    def new_directory(self, disk_mib: int = 0) -> Iterator[Path]:
        """An empty directory, removed at the end; with ``disk_mib`` the root of a new ext4 of that size.

        Where many files were deleted recently, each new one costs more. The second target would pay for
        the first.
        """
        directory = self._directory / f"own-{next(self._numbers)}"
        try:
            if disk_mib and can_mount():
                with SmallDisk(directory, disk_mib) as disk:
                    yield disk.path
            else:
                yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _create(self, topic: str, partitions: int, replicas: int, config: dict[str, str] | None) -> None:
        create_topic(self.bootstrap, topic, partitions, replicas, config)
        self._leaders[topic] = await_leaders(self.broker, topic, partitions)

    def _leftovers(self, topics: Sequence[str]) -> list[Path]:
        """A deleted partition's directory is renamed to <topic>-<partition>.<id>-delete, and disappears a
        moment later.
        """
        return [
            path for broker in self.brokers for topic in topics for path in broker.log_dir.glob(f"{topic}-*")
        ]


@contextmanager
def killed_in_the_end(brokers: Sequence[BrokerProcess]) -> Iterator[None]:
    """Kafka without peers wastes ten seconds on its controlled shutdown, so all are killed."""
    try:
        yield
    finally:
        for broker in brokers:
            broker.kill()


def await_leaders(broker: BrokerProcess, topic: str, partitions: int) -> dict[int, int]:
    """Waits until every partition's leader serves it; returns their ports."""
    found = wait_until(
        lambda: serving_leaders(broker.port, topic, partitions), LEADERS_TIMEOUT_S, what=f"{topic} is served"
    )
    assert found is not None
    return found


def pause(seconds: float) -> None:
    """Waits until a broker has settled, or for as long as its idleness is measured."""
    time.sleep(seconds)


def _cpu_of(brokers: Sequence[BrokerProcess]) -> CpuSeconds:
    parts = [broker.cpu_seconds() for broker in brokers]
    return CpuSeconds(sum(part.user for part in parts), sum(part.system for part in parts))
