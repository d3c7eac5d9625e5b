"""A load of real clients on its own topics, for a test that injects faults meanwhile, and the history of it.

The clients run in two processes, producers and consumers, and survive any fault. They write what they see as
JSON lines into ``log_dir``, one file per process, for ``checker`` and for later inspection. The test itself
gets only counts and times.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from chaos.ack_times import AckTimes, Partition
from chaos.anomalies import Anomaly
from chaos.checker import check_all
from chaos.client_process import Command, Drain, LoadPlan, Rebalance, Report, Stop, Work, transactional_id
from chaos.consuming import run_consumers
from chaos.final_log import read_ends, read_final_log, read_group_offsets
from chaos.history import GroupOffset, History, Trouble
from chaos.history_file import HistoryWriter, read_history
from chaos.late_commits import undone_by_late_commits
from chaos.producing import run_producers, transactional_names
from chaos.resent import ReplicaLogs, resent_by_client
from rig.topics import create_topic
from rig.wait import wait_until

__all__ = ["Load", "LoadFailedError", "LoadPlan", "findings", "verdict"]

TOPIC_CONFIG = {"min.insync.replicas": "2"}
REPORT_TIMEOUT_S = 30.0
T = TypeVar("T")


class LoadFailedError(RuntimeError):
    """A client process died; the message names its log."""


class Load:
    """A load: clients that write and read from ``__enter__`` to ``finish``; a context manager, which leaves
    no process.

    Topics are ``<run>-<number>``, the group is ``<run>-group``. Transactional producers have a topic of their own,
    ``<run>-transactions``; a copier copies it into ``<run>-copies``. They stay when the load is gone.
    """

    def __init__(
        self,
        bootstrap: str,
        plan: LoadPlan,
        log_dir: Path,
        *,
        run: str,
        replication_factor: int = 3,
        topic_config: Mapping[str, str] | None = None,
        client_config: Mapping[str, object] | None = None,
        makes_topics: bool = True,
    ) -> None:
        """``topic_config`` and ``client_config`` (librdkafka's names) override the load's own settings. Where clients
        log in, the topics are made by somebody else: only the load's clients log in.
        """
        self._bootstrap = bootstrap
        self._plan = plan
        self._log_dir = log_dir
        self._run = run
        self._replication_factor = replication_factor
        self._topic_config = {**TOPIC_CONFIG, **(topic_config or {})}
        self._client_config = dict(client_config or {})
        self._login = {
            key: value
            for key, value in self._client_config.items()
            if key.startswith(("security.", "ssl.", "sasl."))
        }
        self._makes_topics = makes_topics
        self._times = AckTimes()
        self._history: History | None = None
        self._audit: HistoryWriter
        self._producers: _Process
        self._consumers: _Process

    @property
    def topics(self) -> tuple[str, ...]:
        """The load's topics, at last those with transactions."""
        return self._plain_topics + self._transactional_topics

    @property
    def _plain_topics(self) -> tuple[str, ...]:
        return tuple(f"{self._run}-{number}" for number in range(self._plan.topics))

    @property
    def _transactional_topics(self) -> tuple[str, ...]:
        names = (f"{self._run}-transactions", f"{self._run}-copies")
        return names if self._plan.producers_transactional else ()

    @property
    def group(self) -> str:
        """The members' group."""
        return f"{self._run}-group"

    @property
    def transactional_id(self) -> str:
        """The first transactional producer's."""
        return transactional_id(self.group, transactional_names(self._plan)[0])

    @property
    def history_paths(self) -> list[Path]:
        """The files that make up the history, for the checker's command."""
        return [self._log_dir / f"{self._run}-{part}.jsonl" for part in ("producers", "consumers", "audit")]

    def __enter__(self) -> Self:
        if self._makes_topics:
            for topic in self.topics:
                create_topic(
                    self._bootstrap,
                    topic,
                    self._plan.partitions,
                    self._replication_factor,
                    self._topic_config,
                )
        producers, consumers, audit = self.history_paths
        self._audit = HistoryWriter(audit)
        self._consumers = _Process(run_consumers, self._work(consumers), self._times)
        self._producers = _Process(run_producers, self._work(producers), self._times)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producers.kill()
        self._consumers.kill()
        self._audit.close()

    def _work(self, history_path: Path) -> Work:
        log_path = history_path.with_suffix(".log")
        return Work(
            self._bootstrap,
            self._plan,
            self._plain_topics,
            self.group,
            history_path,
            log_path,
            self._client_config,
            self._transactional_topics,
        )

    def acked(self) -> int:
        """The number of acknowledgements at the last report."""
        return self._producers.report.acked

    def failed(self) -> int:
        """The number of records that the producers gave up on."""
        return self._producers.report.failed

    def polled(self) -> int:
        """The number of records that all consumers received, the copier included."""
        return self._consumers.report.polled + self._producers.report.polled

    def committed(self) -> int:
        """The number of transactions that were committed, the copier's included."""
        return self._producers.report.committed

    def longest_gap_s(self, since: float, until: float) -> float:
        """The longest time without any acknowledgement between two times of ``time.monotonic``."""
        self._producers.await_report(until)
        return self._producers.locked(lambda: self._times.longest_gap_s(since, until))

    def gaps_s(self, since: float, until: float) -> dict[Partition, float]:
        """The longest gap of each partition, by topic and number; of topics with transactions none, because their
        records are acknowledged together, and have gaps of seconds where nothing is wrong.
        """
        self._producers.await_report(until)
        gaps = self._producers.locked(lambda: self._times.gaps_s(since, until))
        return {partition: gap for partition, gap in gaps.items() if partition[0] in self._plain_topics}

    def worst_gap_s(self, since: float, until: float) -> float:
        """The longest gap of the partition that waited longest."""
        return max(self.gaps_s(since, until).values())

    def await_progress(self, acks: int, timeout_s: float) -> None:
        """Waits for this many more acknowledgements; raises TimeoutError."""
        goal = self.acked() + acks
        self._producers.check()
        what = f"{acks} more acknowledgements than {goal - acks}"
        wait_until(lambda: self.acked() >= goal, timeout=timeout_s, what=what)

    def await_transactions(self, timeout_s: float) -> None:
        """Waits until another transaction is committed, if the load has any; raises TimeoutError."""
        before = self.committed()
        self._producers.check()
        if self._transactional_topics:
            what = f"more committed transactions than {before}"
            wait_until(lambda: self.committed() > before, timeout=timeout_s, what=what)

    def await_progress_everywhere(self, timeout_s: float) -> None:
        """Waits until every partition has acknowledged something from now on; raises TimeoutError."""
        now = time.monotonic()
        self._producers.check()
        wait_until(
            lambda: not self._producers.locked(lambda: self._times.quiet_since(now)),
            timeout=timeout_s,
            what="an acknowledgement of every partition",
        )

    def rebalance(self) -> None:
        """Makes a member of the group leave and another one join."""
        self._consumers.tell(Rebalance())

    def observe_high_watermarks(self, timeout_s: float = 60.0) -> None:
        """Records each partition's end: what was acknowledged or read before must be below it.

        Call this only while all replicas are in sync, when no deposed leader can answer.
        """
        self._audit.add(*read_ends(self._bootstrap, self.topics, timeout_s, self._login))

    def finish(self, timeout_s: float) -> History:
        """Stops the producers, lets the consumers reach the end, and reads the final log; returns the
        whole history.

        Every partition must have a leader again. A consumer that does not reach the end in time is
        reported by the checker. A partition that cannot be read raises TimeoutError. A second call returns
        the same history.
        """
        if self._history is None:
            self._history = self._finish(time.monotonic() + timeout_s)
        return self._history

    def _finish(self, deadline: float) -> History:
        def left() -> float:
            return max(deadline - time.monotonic(), 10.0)

        self._producers.tell(Stop())
        if not self._producers.await_done(left()):
            self._audit.add(Trouble("producers", "they still wait for answers"))
        ends = read_ends(self._bootstrap, self.topics, left(), self._login)
        self._audit.add(*ends)
        self._consumers.tell(Drain({(end.topic, end.partition): end.offset for end in ends}))
        if not self._consumers.await_done(left()):
            self._audit.add(Trouble("consumers", "they did not come to the end in time"))
        self._consumers.stop(left())
        if self._plan.group_consumers:
            self._audit.add(*self._group_offsets(self.group, self._plain_topics, left()))
        for source in self._transactional_topics[:1]:
            copier = f"{self.group}-copier"
            self._audit.add(*self._group_offsets(copier, [source], left()))
        self._audit.add(*read_final_log(self._bootstrap, self.topics, left(), self._login))
        self._audit.flush()
        self._producers.kill()
        return read_history(*self.history_paths)

    def _group_offsets(self, group: str, topics: Iterable[str], timeout_s: float) -> list[GroupOffset]:
        return read_group_offsets(self._bootstrap, group, topics, timeout_s, self._login)


def verdict(history: History, replica_dirs: Mapping[int, Path] | None) -> list[Anomaly]:
    """Every anomaly of a finished load's history, and of the replicas' files by broker id."""
    return check_all(history, replica_dirs)


def findings(history: History, replica_dirs: Mapping[int, Path]) -> list[Anomaly]:
    """The verdict without anomalies that clients caused themselves: see ``resent`` and ``late_commits``."""
    found = verdict(history, replica_dirs)
    own = resent_by_client(found, history, ReplicaLogs(replica_dirs)) | undone_by_late_commits(
        found, history, replica_dirs
    )
    return [anomaly for anomaly in found if anomaly not in own]


class _Process:
    """The test's side of a client process: its last report. A thread keeps it, and adds the times
    to ``times``.

    Its condition's lock guards the report and the times.
    """

    def __init__(self, target: Callable[[Work, Connection], None], work: Work, times: AckTimes) -> None:
        self.report = Report(0.0)
        self._log_path = work.log_path
        self._times = times
        self._changed = threading.Condition()
        self._gone = False
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(work, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while True:
                report: Report = self._connection.recv()
                with self._changed:
                    self._times.add(report.bursts)
                    self.report = report
                    self._changed.notify_all()
        except (EOFError, OSError):
            with self._changed:
                self._gone = True
                self._changed.notify_all()

    def check(self) -> None:
        """Raises LoadFailedError when the process died."""
        if self._gone and not self.report.done:
            raise LoadFailedError(f"a client process ended with {self._process.exitcode}: {self._log_path}")

    def tell(self, command: Command) -> None:
        """Sends a command. Resets ``done``, because an earlier report says nothing about this command."""
        self.check()
        with self._changed:
            self.report = replace(self.report, bursts=[], done=False)
        self._connection.send(command)

    def await_report(self, moment_s: float) -> None:
        """Waits until everything before this time was reported; raises TimeoutError, LoadFailedError."""
        if not self._wait(lambda: self.report.through_s >= moment_s, REPORT_TIMEOUT_S):
            raise TimeoutError(
                f"a client process reported nothing for {REPORT_TIMEOUT_S} s: {self._log_path}"
            )

    def await_done(self, timeout_s: float) -> bool:
        """Whether the process reports in time that it has completed its command."""
        return self._wait(lambda: self.report.done, timeout_s)

    def locked(self, look: Callable[[], T]) -> T:
        """Reads the times while none is added."""
        with self._changed:
            return look()

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            found = self._changed.wait_for(lambda: condition() or self._gone, timeout_s)
            if not condition():
                self.check()
            return found and condition()

    def stop(self, timeout_s: float) -> None:
        """Tells the process to stop, waits, and then kills it in any case."""
        self.tell(Stop())
        self.await_done(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kills the process if it still runs."""
        self._process.join(0.5 if self.report.done else 0)
        self._process.kill()
        self._process.join(20)
        self._listener.join(20)
        self._connection.close()
