"""The rounds: every target in turn, in alternating order; collects all samples and failures.

A visit of a target runs the selected suites in order. Consecutive suites on the same stage share its brokers,
which are started on an empty directory and warmed up without measuring (a JVM needs this, so all get it). A
failed workload is recorded with its reason and does not affect the others. A broker that died, or no longer
answers, is replaced.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench import pages
from bench.client import tools
from bench.client.batches import encode_batch
from bench.results import Failure, Sample
from bench.suites.clients import LINES_MIB
from bench.targets import Factory, Target, TlsListener
from bench.visit import LEAST_MIB, Visit, killed_in_the_end, pause
from bench.workload import Stage, Suite, Workload
from rig.brokers import BrokerProcess
from rig.processes import MIB
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer

WARM_UP_MIB: Mapping[Stage, int] = {Stage.ONE: 2048, Stage.THREE: 512, Stage.TLS: 1024}
STAGE_BROKERS: Mapping[Stage, int] = {Stage.ONE: 1, Stage.THREE: 3, Stage.TLS: 1}
WARM_UP_BATCH_BYTES = 16 * 1024
SETTLE_S = 3.0
NOISY_CORES = 0.4
MAX_REPEATS = 2
COMPLETE_TIMEOUT_S = 60.0
RECOVERY_S = 20.0
REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Noise:
    """A run that neighbours disturbed: how often it was repeated, and whether the final run was quiet."""

    what: str
    repeats: int
    foreign_cores: float

    @property
    def settled(self) -> bool:
        """Whether a repeat was quiet."""
        return self.foreign_cores <= NOISY_CORES


@dataclass(slots=True)
class Session:
    """The measurement: all samples over all rounds. ``report`` receives each step; a noisy run is repeated up
    to ``repeats`` times.
    """

    zookeeper: ZooKeeperServer
    work_dir: Path
    suites: Sequence[Suite]
    scale: float
    report: Callable[[str], None]
    repeats: int = MAX_REPEATS
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    noise: list[Noise] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, targets: Sequence[Target], rounds: int) -> None:
        """Runs all rounds."""
        lines = self.work_dir / "lines.txt"
        tools.write_lines(lines, max(LEAST_MIB, round(LINES_MIB * self.scale)))
        for number in range(rounds):
            for target in targets if number % 2 == 0 else list(reversed(targets)):
                visit = Visit(Factory(target, self.zookeeper), self.work_dir, self.scale, lines)
                _OneVisit(self, visit, number).run()


@dataclass(slots=True)
class _OneVisit:
    """All suites, once, for one target."""

    session: Session
    visit: Visit
    number: int

    def run(self) -> None:
        for stage, suites in itertools.groupby(self.session.suites, key=lambda suite: suite.stage):
            waiting = deque(
                workload
                for suite in suites
                for workload in suite.workloads
                if self.visit.target.kind in workload.targets
            )
            while waiting:
                self._on_stage(stage, waiting)

    def _on_stage(self, stage: Stage, waiting: deque[Workload]) -> None:
        """Runs workloads until none is left or a broker fails. If the stage cannot be set up, all fail."""
        try:
            with self._stage(stage):
                while waiting and all(map(_is_well, self.visit.brokers)):
                    self._workload(waiting.popleft())
        except Exception as error:
            while waiting:
                self._failed(waiting.popleft(), error)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[None]:
        if stage is Stage.OWN:
            self.visit.begin(())
            yield
            return
        self.session.report(f"{self._name()}: {stage.value}")
        with self.visit.new_directory() as directory:
            brokers, tls = self._made(stage, directory)
            with killed_in_the_end(brokers):
                for broker in brokers:
                    broker.start_nowait()
                for broker in brokers:
                    broker.wait_ready()
                wait_until(
                    lambda: all(len(broker.view().ports) == len(brokers) for broker in brokers),
                    COMPLETE_TIMEOUT_S,
                    what="the brokers know each other",
                )
                pause(SETTLE_S)
                self.visit.begin(brokers, tls)
                self.visit.idle_rss_mib = brokers[0].rss_mb()
                self._warm_up(stage)
                yield

    def _made(self, stage: Stage, directory: Path) -> tuple[list[BrokerProcess], TlsListener | None]:
        if stage is not Stage.TLS:
            return self.visit.factory.brokers(directory, STAGE_BROKERS[stage]), None
        broker, tls = self.visit.factory.secured(directory)
        return [broker], tls

    def _warm_up(self, stage: Stage) -> None:
        visit, batch = self.visit, encode_batch(WARM_UP_BATCH_BYTES)
        size = visit.mib(WARM_UP_MIB[stage])
        topic = visit.fresh_topic(replicas=STAGE_BROKERS[stage])
        pages.touch_free_memory(size * STAGE_BROKERS[stage])
        visit.produce(topic, batch, size)
        visit.fetch(topic, batch, size, MIB)
        visit.tidy()

    def _workload(self, workload: Workload) -> None:
        self.session.report(f"{self._name()}: {workload.title}")
        start = time.perf_counter()
        try:
            values = self._quietest(workload)
        except Exception as error:
            self._failed(workload, error)
        else:
            self.session.samples += [
                Sample(key, self.visit.target.value, self.number, value) for key, value in values.items()
            ]
        taken = self.session.seconds
        taken[workload.title] = taken.get(workload.title, 0.0) + time.perf_counter() - start

    def _quietest(self, workload: Workload) -> Mapping[str, float]:
        """Repeats it while neighbours disturb it; the run is chosen by their CPU time alone, never by
        the result.
        """
        best, least = self._once(workload)
        repeats = 0
        while workload.repeats and least > NOISY_CORES and repeats < self.session.repeats:
            repeats += 1
            again, foreign = self._once(workload)
            if foreign < least:
                best, least = again, foreign
        if repeats:
            self.session.noise.append(Noise(f"{self._name()}, {workload.title}", repeats, least))
        return best

    def _once(self, workload: Workload) -> tuple[Mapping[str, float], float]:
        self.visit.foreign_cores = 0.0
        try:
            values = workload.run(self.visit)
        finally:
            self.visit.tidy()
        return values, self.visit.foreign_cores

    def _failed(self, workload: Workload, error: Exception) -> None:
        text = " ".join(str(error).split())[:REASON_CHARACTERS]
        keys = tuple(metric.key for metric in workload.metrics)
        reason = f"{type(error).__name__}: {text}"
        self.session.failures.append(
            Failure(workload.title, keys, self.visit.target.value, self.number, reason)
        )

    def _name(self) -> str:
        return f"round {self.number + 1}, {self.visit.target.value}"


def _is_well(broker: BrokerProcess) -> bool:
    """Whether the broker runs and answers with its cluster's brokers, within its time for recovery."""
    end = time.monotonic() + RECOVERY_S
    while broker.process.running and time.monotonic() < end:
        with suppress(OSError):
            return bool(broker.view().ports)
        pause(1.0)
    return False
