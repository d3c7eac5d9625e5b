"""Runs the rounds of a walk on a cluster under load, and judges the history.

A walk is divided into segments. Each has its own load on its own topics. When its rounds are over, the
history is judged, with the replicas' files. The first segment with a finding ends the walk; all evidence is
kept in the walk's directory.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.cluster import ClusterUnderTest, NotHealedError
from chaos.history import Acked, Ended, Failed, Fenced, History, Polled, Sent, Trouble
from chaos.late_commits import undone_by_late_commits
from chaos.load import Load, LoadFailedError, LoadPlan, verdict
from chaos.reach import reached
from chaos.resent import ReplicaLogs, resent_by_client
from chaos.rounds import PROGRESS_ACKS, Observer, Round, run_round
from chaos.scenarios import HEALS_WITHIN_S, Step
from chaos.scripts import SCRIPTS
from lab import LabError
from rig.topics import delete_topics

SEGMENT_ROUNDS = 20
FINISH_TIMEOUT_S = 150.0
TELLING = {"debug": "eos,broker,metadata,topic"}
"""Makes librdkafka log when and why an idempotent producer begins a new epoch, after which its records may be
in the log twice; and which brokers it knows and is connected to, in case a consumer goes deaf.
"""
PLAN = LoadPlan(
    topics=2,
    partitions=3,
    producers_plain=1,
    producers_idempotent=2,
    producers_transactional=2,
    group_consumers=3,
    assigned_consumers=1,
    records_per_s=400,
    value_size=200,
    seed=0,
)


@dataclass(slots=True)
class Totals:
    """The totals of all segments."""

    sent: int = 0
    acked: int = 0
    polled: int = 0
    failed: int = 0
    troubles: list[str] = field(default_factory=list)
    """Errors that clients raised; the clients were replaced."""
    allowed: int = 0
    """Anomalies that the topics' configuration allows: after unclean elections."""
    resent: int = 0
    """Records that an idempotent producer sent again in a new epoch of its own."""
    reached: Counter[str] = field(default_factory=Counter)
    """What the faults caused in the brokers, according to their logs."""
    late_commits: int = 0
    """Commits that an older request of the same client undid."""
    segments: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    """By outcome, as their producers know it."""
    fenced: int = 0
    """Instances of transactional producers that a later one fenced."""


@dataclass(slots=True)
class WalkResult:
    """All rounds, and the findings; a good walk has none."""

    seed: int
    rounds: list[Round] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


def segments(steps: Sequence[Step], limit: int) -> Iterator[Sequence[Step]]:
    """Divides a walk into runs of at most ``limit`` steps; a script is a segment of its own."""
    run: list[Step] = []
    for step in steps:
        alone = step.scenario.fault in SCRIPTS
        if run and (alone or len(run) == limit):
            yield run
            run = []
        if alone:
            yield [step]
        else:
            run.append(step)
    if run:
        yield run


class Walk:
    """One walk over its steps. Its directory gets the load's logs and, after a finding, the evidence."""

    def __init__(
        self,
        cluster: ClusterUnderTest,
        seed: int,
        steps: Sequence[Step],
        directory: Path,
        observer: Observer,
        *,
        plan: LoadPlan = PLAN,
        segment_rounds: int = SEGMENT_ROUNDS,
    ) -> None:
        self._cluster = cluster
        self._seed = seed
        self._steps = steps
        self._directory = directory
        self._observer = observer
        self._plan = plan
        self._segment_rounds = segment_rounds

    def run(self) -> WalkResult:
        """Runs all segments, or those up to the first with a finding; leaves no fault behind, even
        if interrupted.
        """
        try:
            return self._run()
        finally:
            self._cluster.restore()

    def _run(self) -> WalkResult:
        result = WalkResult(self._seed)
        begin = time.monotonic()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._cluster.restore()
        self._cluster.await_whole([], HEALS_WITHIN_S)
        for number, segment in enumerate(segments(self._steps, self._segment_rounds), 1):
            self._run_segment(number, segment, result)
            result.seconds = time.monotonic() - begin
            if result.findings:
                break
        return result

    def _run_segment(self, number: int, steps: Sequence[Step], result: WalkResult) -> None:
        since_s = time.time()
        directory = self._directory / f"segment-{number:03d}"
        directory.mkdir(parents=True, exist_ok=True)
        rounds: list[Round] = []
        troubles_before = len(result.totals.troubles)
        try:
            load = self._load(f"chaos-{uuid.uuid4().hex[:6]}-{number}", steps[0], directory)
            with load:
                self._begin(load)
                self._run_rounds(load, steps, rounds)
                result.findings += [f"{done.step}: {done.finding}" for done in rounds if done.finding]
                self._observer.judging(number)
                self._judge(load, steps[0], directory, rounds, result)
        except (NotHealedError, LoadFailedError, LabError, OSError) as error:
            result.findings.append(f"segment {number}: {type(error).__name__}: {error}")
        result.rounds += rounds
        for broker in self._cluster.broker_ids:
            result.totals.reached += reached(self._cluster.journal(broker, since_s))
        troubles = result.totals.troubles[troubles_before:]
        if result.findings or troubles:  # the log of a client that had to be replaced says why
            self._keep_evidence(directory, rounds, since_s, result.findings + troubles)
        else:
            shutil.rmtree(directory)
        if not result.findings:
            delete_topics(self._cluster.bootstrap, load.topics)

    def _load(self, run: str, first: Step, directory: Path) -> Load:
        """A script has its own topics; all other steps share the walk's plan."""
        bootstrap, script = self._cluster.bootstrap, SCRIPTS.get(first.scenario.fault)
        if script is None:
            return Load(bootstrap, self._plan, directory, run=run, client_config=TELLING)
        return Load(
            bootstrap,
            script.plan,
            directory,
            run=run,
            replication_factor=script.replication_factor,
            topic_config=script.topic_config,
            client_config=TELLING,
        )

    def _begin(self, load: Load) -> None:
        self._cluster.await_whole(load.topics, HEALS_WITHIN_S)
        load.await_progress(PROGRESS_ACKS, HEALS_WITHIN_S)
        load.await_transactions(HEALS_WITHIN_S)

    def _judge(
        self, load: Load, first: Step, directory: Path, rounds: list[Round], result: WalkResult
    ) -> None:
        """Ends the load and checks everything it saw; anomalies that a script's topics allow are noted with
        its round.
        """
        if result.findings:
            # The rest collects evidence, for which the cluster must be readable.
            self._cluster.restore()
        history = load.finish(FINISH_TIMEOUT_S)
        self._count(history, result.totals)
        script = SCRIPTS.get(first.scenario.fault)
        forgiven = script.forgiven if script else frozenset()
        replica_dirs = self._cluster.replica_dirs(load.topics, directory / "replicas")
        everything = verdict(history, replica_dirs)
        resent = resent_by_client(everything, history, ReplicaLogs(replica_dirs))
        late = undone_by_late_commits(everything, history, replica_dirs)
        result.totals.resent += len(resent)
        result.totals.late_commits += len(late)
        found = [anomaly for anomaly in everything if anomaly not in resent | late]
        result.findings += [str(anomaly) for anomaly in found if anomaly.kind not in forgiven]
        allowed = Counter(anomaly.kind.value for anomaly in found if anomaly.kind in forgiven)
        if allowed:
            told = ", ".join(f"{count} {kind}" for kind, count in sorted(allowed.items()))
            rounds[-1] = replace(rounds[-1], allowed=told)
            result.totals.allowed += sum(allowed.values())

    def _run_rounds(self, load: Load, steps: Sequence[Step], rounds: list[Round]) -> None:
        """Runs the steps until one does not heal."""
        for step in steps:
            done = run_round(self._cluster, load, step, self._observer)
            rounds.append(done)
            self._observer.ended(done)
            if done.finding:
                break

    def _count(self, history: History, totals: Totals) -> None:
        totals.segments += 1
        counts = Counter(type(event) for event in history.events)
        totals.sent += counts[Sent]
        totals.acked += counts[Acked]
        totals.polled += counts[Polled]
        totals.failed += counts[Failed]
        totals.fenced += counts[Fenced]
        totals.transactions += Counter(event.outcome for event in history.of_type(Ended))
        totals.troubles += [f"{event.client}: {event.what}" for event in history.of_type(Trouble)]

    def _keep_evidence(
        self, directory: Path, rounds: Sequence[Round], since_s: float, findings: Sequence[str]
    ) -> None:
        """Keeps journals, replicas' files and the steps with their victims, beside the history and the
        load's logs.
        """
        story = [
            f"{done.step}; victims {done.victims}, {done.seconds:.1f} s, gap {done.gap_s:.1f} s, "
            f"waited for: {done.waited_for} {done.allowed} {done.finding}"
            for done in rounds
        ]
        (directory / "steps.txt").write_text("\n".join([*story, "", *findings]) + "\n")
        for broker, log_dir in self._cluster.log_dirs().items():
            (directory / f"journal-h{broker}.log").write_text(self._cluster.journal(broker, since_s))
            with contextlib.suppress(shutil.Error):  # a checkpoint's temporary file may vanish meanwhile
                shutil.copytree(log_dir, directory / f"replica-{broker}")
