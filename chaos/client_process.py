"""The common part of the load's client processes: their plan, reports to the test, logs and shutdown.

A process runs its clients as threads, writes what they see to its own history file, and reports ten times a
second. It ends on request, or when the test is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from chaos.ack_times import Burst, Partition, bursts_of
from chaos.history import Acked, Event, Trouble
from chaos.history_file import HistoryWriter

REPORT_S = 0.1
FLUSH_S = 1.0
RETRY_S = 0.5
"""Seconds between a client's error and the start of its replacement."""

COMMON_CONFIG: Mapping[str, object] = {
    # A dead or frozen broker must be noticed in seconds, not by the defaults: faults follow each
    # other quickly.
    "reconnect.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 3000,
    "socket.timeout.ms": 10_000,
    "socket.keepalive.enable": True,
}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The number of clients and their rate. The load creates the topics, each with this
    many ``partitions``.
    """

    topics: int = 2
    partitions: int = 3
    producers_plain: int = 1
    producers_idempotent: int = 2
    producers_transactional: int = 1
    """Those have a topic of their own, which a copier reads; without them there is no copier either."""
    transactions_per_s: float = 4.0
    """Of each transactional producer, in transactions of a few records."""
    group_consumers: int = 2
    assigned_consumers: int = 1
    records_per_s: float = 1000.0
    """Of all plain and idempotent producers together."""
    value_size: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The arguments of a client process, which are passed to it by pickling."""

    bootstrap: str
    plan: LoadPlan
    topics: tuple[str, ...]
    group: str
    history_path: Path
    log_path: Path
    client_config: Mapping[str, object]
    """librdkafka settings that override the load's own."""

    transactional_topics: tuple[str, ...] = ()
    """What transactional producers write to, and the copier's output; none without such producers."""

    @property
    def transactions_topic(self) -> str:
        """The topic of the transactional producers."""
        return self.transactional_topics[0]

    @property
    def copies_topic(self) -> str:
        """The copier's output."""
        return self.transactional_topics[1]

    @property
    def copier_group(self) -> str:
        """The copier's group."""
        return f"{self.group}-copier"

    def partitions(self) -> list[Partition]:
        """All partitions of all topics without transactions."""
        return [each for topic in self.topics for each in self.partitions_of(topic)]

    def partitions_of(self, topic: str) -> list[Partition]:
        """All partitions of one topic; each has as many."""
        return [(topic, number) for number in range(self.plan.partitions)]

    def config(self, settings: Mapping[str, object]) -> dict[str, Any]:
        """A client's configuration."""
        own = {"bootstrap.servers": self.bootstrap, **COMMON_CONFIG, **settings}
        return {**own, **self.client_config}


def transactional_id(group: str, producer: str) -> str:
    """The transactional id of one of the load's producers."""
    return f"{group}-{producer}"


@dataclass(frozen=True, slots=True)
class Report:
    """What happened in a process until ``through_s``: counts since its start, bursts since its
    last report.
    """

    through_s: float
    acked: int = 0
    failed: int = 0
    polled: int = 0
    committed: int = 0
    bursts: list[Burst] = field(default_factory=list)
    done: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """A command. To producers: send nothing more and wait for what is in flight. To consumers: leave."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A command to consumers: one member of the group leaves, another joins."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A command to consumers: report when all have read up to these ends."""

    ends: Mapping[Partition, int]

    def within(self, topics: Collection[str]) -> Drain:
        """Only these topics' ends."""
        return Drain({key: end for key, end in self.ends.items() if key[0] in topics})


Command = Stop | Rebalance | Drain


class Records:
    """The record of what a process's clients see. Its lock guards the counts; lists are swapped whole."""

    def __init__(self, writer: HistoryWriter) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._acks: list[tuple[Partition, float]] = []
        self._acked = self._failed = self._polled = self._committed = 0

    def add(self, *events: Event) -> None:
        """Records events that need no counting."""
        self._writer.add(*events)

    def acked(self, event: Event, partition: Partition) -> None:
        """Records an acknowledgement."""
        self._writer.add(event)
        with self._lock:
            self._acked += 1
            self._acks.append((partition, event.at_s))

    def committed(self, events: Iterable[Acked], *, timed: bool) -> None:
        """Records the records of a committed transaction. If not ``timed``, nobody waits for such a one."""
        for event in events:
            self._writer.add(event)
            with self._lock:
                self._acked += 1
                if timed:
                    self._acks.append(((event.topic, event.partition), event.at_s))
        with self._lock:
            self._committed += 1

    def failed(self, event: Event) -> None:
        """Records a failure."""
        self._writer.add(event)
        with self._lock:
            self._failed += 1

    def polled(self, *events: Event) -> None:
        """Records what one poll returned."""
        self._writer.add(*events)
        with self._lock:
            self._polled += len(events)

    def flush(self) -> None:
        """Makes the recorded events survive the process. Must be done before others may act on them."""
        self._writer.flush()

    def report(self, *, done: bool = False, error: str = "") -> Report:
        """Takes the acknowledgements since the last report."""
        with self._lock:
            through_s = time.monotonic()
            acks, self._acks = self._acks, []
            counts = (self._acked, self._failed, self._polled, self._committed)
        acks.sort(key=lambda ack: ack[1])
        return Report(through_s, *counts, bursts_of(acks), done, error)


def keep_trying(name: str, records: Records, work: Callable[[], None], leaving: threading.Event) -> None:
    """Runs a client until it ends by itself. One that raised is reported and replaced, unless it
    is leaving.
    """
    while True:
        try:
            work()
        except Exception as error:  # Whatever a library raises during a fault, the load continues.
            records.add(Trouble(name, repr(error)))
            logging.getLogger(__name__).warning("%s starts anew", name, exc_info=True)
            if leaving.wait(RETRY_S):
                return
        else:
            return


class ProcessSide:
    """The process's end of the pipe; also sends its regular reports."""

    def __init__(self, connection: Connection, records: Records) -> None:
        self._connection = connection
        self._records = records

    def serve(
        self, obey: Callable[[Command], None], is_done: Callable[[], bool], ended: threading.Event
    ) -> None:
        """Handles commands and reports until ``ended`` is set."""
        flushed_s = time.monotonic()
        while not ended.is_set():
            if self._connection.poll(REPORT_S):
                obey(self._connection.recv())
            self._connection.send(self._records.report(done=is_done()))
            if time.monotonic() - flushed_s > FLUSH_S:
                self._records.flush()
                flushed_s = time.monotonic()


def set_up_process(log_path: Path) -> None:
    """Sends the libraries' complaints about dead brokers to a log, and ignores a terminal's interrupt: the
    test handles it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
