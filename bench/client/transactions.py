"""A librdkafka producer that writes in transactions, as fast as they are acknowledged, and times its commits."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Producer

TIMEOUT_S = 60.0
_MS_PER_S = 1000.0
# Few enough that the last records of a transaction wait for the broker, not for a queue of the client.
_QUEUED_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Commits:
    """When a transaction is committed: after ``records``, or ``seconds`` after its begin if there are none; and the
    size of its records.
    """

    records: int = 0
    seconds: float = 0.0
    record_bytes: int = 1024


@dataclass(frozen=True, slots=True)
class TransactionsRun:
    """A run of transactions. ``commit_ms`` has the time of each commit: from the acknowledgement of all records
    until the coordinator has stored the commit.
    """

    records: int
    seconds: float
    commit_ms: list[float]


def write_transactions(
    bootstrap: str, topic: str, partitions: int, commits: Commits, seconds: float
) -> TransactionsRun:
    """Writes records to all partitions in turn, in transactions, until ``seconds`` have passed.

    The time until the producer has its id is not counted. Raises KafkaException, also for a lost record: its
    transaction cannot be committed.
    """
    return _Transactions(bootstrap, topic, partitions, commits.record_bytes).run(commits, seconds)


class _Transactions:
    """One producer with its only transactional id."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, record_bytes: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._value = bytes(record_bytes)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"bench-{topic}",
                "queue.buffering.max.messages": _QUEUED_RECORDS,
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    def run(self, commits: Commits, seconds: float) -> TransactionsRun:
        self._producer.init_transactions(TIMEOUT_S)
        records, commit_ms = 0, []
        start = time.perf_counter()
        end = start + seconds
        while time.perf_counter() < end:
            self._producer.begin_transaction()
            records += self._write(commits)
            self._producer.flush(TIMEOUT_S)
            before = time.perf_counter()
            self._producer.commit_transaction(TIMEOUT_S)
            commit_ms.append((time.perf_counter() - before) * _MS_PER_S)
        return TransactionsRun(records, time.perf_counter() - start, commit_ms)

    def _write(self, commits: Commits) -> int:
        """Writes the records of one transaction; returns how many."""
        written, end = 0, time.perf_counter() + commits.seconds
        while written < commits.records if commits.records else time.perf_counter() < end:
            try:
                self._producer.produce(self._topic, self._value, partition=written % self._partitions)
                written += 1
            except BufferError:  # the queue is full
                self._producer.poll(0.001)
        return written
