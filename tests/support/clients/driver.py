"""The interface of a client's driver; each client has its own module in this package.

A driver turns one client library's calls and callbacks into events of a ``history``. It decides nothing: the
``Job`` says how much to write and how fast, and the checker judges the result. Drivers never send a record
twice themselves. Only the library retries, with timeouts that are long enough for a failover.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from chaos.history import Recorder

DELIVERY_TIMEOUT_S = 240
REQUEST_TIMEOUT_S = 60
SESSION_TIMEOUT_S = 10
POLL_S = 0.25
POLL_RECORDS = 1000
COMMIT_EVERY = 500
"""Records between two synchronous commits of one consumer."""


class Gate(Protocol):
    """The part of an event that a producer needs; both threading's and multiprocessing's events have it."""

    def wait(self, timeout: float | None = None) -> bool: ...
    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Workload:
    """The number of records and their destination. ``records_per_s`` None means as fast as the client can.

    The last ``held_back`` records are sent only after the gate opened, so that a fault that is injected
    meanwhile falls within the writing, whatever the machine's speed.
    """

    client: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    consumers: int = 2
    records_per_s: float | None = None
    held_back: int = 0
    quiet_timeout_s: float = 120.0

    @property
    def group(self) -> str:
        """The consumer group's id."""
        return f"{self.topic}-{self.client}"


@dataclass(slots=True)
class Job:
    """One run of a workload: where to record, when to continue, when to end. Shared by the run's threads."""

    workload: Workload
    recorder: Recorder
    gate: Gate
    wait_before: Callable[[int], float]
    """Seconds to wait before the record with this sequence number is sent."""
    reading_done: threading.Event = field(default_factory=threading.Event)

    def partition_of(self, sequence: int) -> int:
        """Round robin in small runs, so that batches contain more than one record."""
        return sequence // 10 % self.workload.partitions


class Driver(Protocol):
    """One client library."""

    name: str
    idempotent: bool

    def produce(self, job: Job, producer: str) -> None:
        """Writes all records and returns when each was acknowledged or failed."""

    def consume(self, job: Job, consumer: str) -> None:
        """Reads as a member of the group until ``job.reading_done``."""


class Positions:
    """The next offset of each partition that one consumer read since its last commit. Used by one thread."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._since_commit = 0

    def read(self, partition: int, offset: int) -> None:
        """Notes a record that was read."""
        self._next[partition] = offset + 1
        self._since_commit += 1

    def assigned(self, partition: int) -> None:
        """Forgets what was read of it before the rebalance, because this member may no longer commit it."""
        self._next.pop(partition, None)

    def due(self, every: int = COMMIT_EVERY) -> dict[int, int]:
        """The offsets to commit by partition; empty if it is not time yet."""
        if self._since_commit < every:
            return {}
        self._since_commit = 0
        taken, self._next = self._next, {}
        return taken
