"""The rounds: every target in turn, the order swapped each round, and all samples of it.

One visit of a target: start-up on an empty directory, start-up with ZooKeeper, memory idle, warm-up (unmeasured:
a JVM needs it, so all get it), every load on fresh topics and touched pages, memory loaded.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import loads, machine
from bench.loads import LOADS, PARTITIONS, WARM_UP, WARM_UP_FETCH, Load, Sizes
from bench.results import Better, Metric, Sample
from bench.targets import Target, simplest_broker, zookeeper_broker
from tests.support.brokers import HOST, BrokerProcess
from tests.support.processes import MIB
from tests.support.topics import create_topic, delete_topics
from tests.support.wire import answers_api_versions
from tests.support.zookeeper import ZooKeeperServer

GIB = 1024 * MIB
PROBE_INTERVAL_S = 0.002
SETTLE_S = 3.0
STARTS = 3
START_TIMEOUT_S = 60.0
NOISY_CORES = 0.4
MAX_REPEATS = 2

Report = Callable[[str], None]


def metrics() -> list[Metric]:
    """Every figure of a visit, in the order of the report."""
    fixed = [
        Metric("start_simplest", "start on an empty directory, to ApiVersions", "s", Better.LOWER, 0.5),
        Metric("start_zookeeper", "start with ZooKeeper up, to ApiVersions", "s", Better.LOWER, 1.0),
        Metric("start_cpu", "CPU of that start", "CPU s", Better.LOWER),
        Metric("rss_idle", "memory idle (RSS)", "MiB", Better.LOWER, 60.0),
    ]
    of_loads = [metric for load in LOADS for metric in _metrics_of(load)]
    return [*fixed, *of_loads, Metric("rss_loaded", "memory after load (RSS)", "MiB", Better.LOWER)]


def _metrics_of(load: Load) -> Iterator[Metric]:
    yield Metric(f"{load.key}.rate", load.title, "MiB/s", Better.HIGHER)
    yield Metric(f"{load.key}.cpu", f"{load.title}: broker CPU", "CPU s/GiB", Better.LOWER)
    yield Metric(f"{load.key}.user", f"{load.title}: of it user", "CPU s/GiB", Better.LOWER, detail=True)
    yield Metric(f"{load.key}.system", f"{load.title}: of it system", "CPU s/GiB", Better.LOWER, detail=True)


@dataclass(frozen=True, slots=True)
class Noise:
    """A load that neighbours disturbed, how often it was repeated, and whether the run that counts was quiet."""

    what: str
    repeats: int
    foreign_cores: float

    @property
    def settled(self) -> bool:
        """Whether a repeat was quiet."""
        return self.foreign_cores <= NOISY_CORES


@dataclass(slots=True)
class Session:
    """Collects samples over all rounds. ``report`` is told each step; ``work_dir`` is emptied after each visit."""

    zookeeper: ZooKeeperServer
    work_dir: Path
    sizes: Sizes
    report: Report
    samples: list[Sample] = field(default_factory=list)
    noise: list[Noise] = field(default_factory=list)

    def run(self, targets: Sequence[Target], rounds: int) -> None:
        """Runs all rounds."""
        lines = self.work_dir / "lines.txt"
        loads.write_lines(lines, self.sizes.librdkafka)
        for number in range(rounds):
            for target in targets if number % 2 == 0 else list(reversed(targets)):
                self._visit(target, number, lines)

    def _visit(self, target: Target, number: int, lines: Path) -> None:
        def sample(metric: str, value: float) -> None:
            self.samples.append(Sample(metric, target.value, number, value))

        step = f"round {number + 1}, {target.value}"
        self.report(f"{step}: start-up")
        sample("start_simplest", self._start_up(simplest_broker, target))
        sample("start_zookeeper", self._start_up(zookeeper_broker, target))
        with self._directory("broker") as directory:
            broker = zookeeper_broker(target, self.zookeeper.chroot("bench"), directory)
            try:
                _start_and_time(broker)
                sample("start_cpu", broker.cpu_seconds().total)
                broker.wait_ready()
                _pause(SETTLE_S)
                sample("rss_idle", broker.rss_mb())
                self._loads(broker, lines, step, sample)
                sample("rss_loaded", broker.rss_mb())
            finally:
                _end(broker)

    def _start_up(self, make: Callable[[Target, str, Path], BrokerProcess], target: Target) -> float:
        """The middle of several starts, each on an empty directory (and chroot): one start is easily disturbed."""
        seconds = []
        for _ in range(STARTS):
            with self._directory("start") as directory:
                broker = make(target, self.zookeeper.chroot("bench"), directory)
                seconds.append(_start_and_time(broker))
                _end(broker)
        return statistics.median(seconds)

    def _loads(
        self, broker: BrokerProcess, lines: Path, step: str, sample: Callable[[str, float], None]
    ) -> None:
        self.report(f"{step}: warm-up")
        for load in (WARM_UP, WARM_UP_FETCH):
            self._once(load, broker, lines)
        delete_topics(broker.bootstrap, [WARM_UP.topic])
        for load in LOADS:
            self.report(f"{step}: {load.title}")
            usage, gib = self._quietest(load, broker, lines, step)
            sample(f"{load.key}.rate", gib * 1024 / usage.seconds)
            sample(f"{load.key}.cpu", usage.broker.total / gib)
            sample(f"{load.key}.user", usage.broker.user / gib)
            sample(f"{load.key}.system", usage.broker.system / gib)

    def _quietest(
        self, load: Load, broker: BrokerProcess, lines: Path, step: str
    ) -> tuple[machine.Usage, float]:
        """Runs a load again while neighbours disturb it; chosen by their CPU alone, never by the result."""
        best = self._once(load, broker, lines)
        repeats = 0
        while best[0].foreign_cores > NOISY_CORES and repeats < MAX_REPEATS:
            repeats += 1
            again = self._once(load, broker, lines, anew=load.fills)
            best = min(best, again, key=lambda run: run[0].foreign_cores)
        if repeats:
            self.noise.append(Noise(f"{step}, {load.title}", repeats, best[0].foreign_cores))
        return best

    def _once(
        self, load: Load, broker: BrokerProcess, lines: Path, *, anew: bool = False
    ) -> tuple[machine.Usage, float]:
        mib = load.mib(self.sizes)
        if anew:
            delete_topics(broker.bootstrap, [load.topic])
            _pause(SETTLE_S)
        if load.fills:
            create_topic(broker.bootstrap, load.topic, PARTITIONS)
        machine.touch_free_memory(mib if load.fills else 0)
        moved: list[int] = []
        usage = machine.measure(lambda: moved.append(load.run(broker.port, mib, lines)), broker.cpu_seconds)
        return usage, moved[0] / GIB

    @contextmanager
    def _directory(self, name: str) -> Iterator[Path]:
        directory = self.work_dir / name
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _start_and_time(broker: BrokerProcess) -> float:
    """Returns the seconds from exec to the first answered ApiVersions."""
    begin = time.perf_counter()
    broker.start_nowait()
    while time.perf_counter() - begin < START_TIMEOUT_S:
        if answers_api_versions(HOST, broker.port, timeout_s=1.0):
            return time.perf_counter() - begin
        if not broker.process.running:
            break
        _pause(PROBE_INTERVAL_S)
    raise TimeoutError(f"{broker.process.title} did not answer\n{broker.process.log_tail()}")


def _end(broker: BrokerProcess) -> None:
    """Kafka without peers wastes ten seconds on its controlled shutdown, so both are killed."""
    broker.process.kill()


def _pause(seconds: float) -> None:
    time.sleep(seconds)
