"""Random histories of transactions that a correct cluster and correct clients would produce.

Allowed are: transactions whose end nobody learned, which are committed or aborted; instances that are fenced,
and then try to go on; a copier whose transactions are aborted and which copies the same records again;
retention that removed the logs' starts.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from chaos.facts import Partition
from chaos.history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Acked,
    Assigned,
    Began,
    Committed,
    Ended,
    Ending,
    Event,
    Fenced,
    GroupOffset,
    HighWatermark,
    History,
    OffsetSent,
    Polled,
    Sent,
    Stored,
    StoredRange,
    Wrote,
    record_id,
)

SOURCE, TARGET = "in", "out"
COPIER, COPIERS, READER = "copier", "copiers", "reader"
MARKER = ""
"""A transaction's marker takes an offset, and is no record."""


@dataclass
class Producer:
    """A transactional id: its instance, and the open transaction with what it wrote and where."""

    name: str
    instance: int = 0
    turn: int = 0
    sequence: int = 0
    transaction: str = ""
    written: list[tuple[str, Partition, int]] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.name}.{self.instance}"


@dataclass
class World:
    """A cluster that makes no mistakes with transactions. Every step takes time."""

    rng: random.Random
    events: list[Event] = field(default_factory=list)
    now: float = 100.0
    logs: dict[Partition, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """By partition: each offset's record, or MARKER, and its transaction."""
    ends: dict[str, bool] = field(default_factory=dict)
    """By transaction that has ended: whether it is committed."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    positions: dict[tuple[str, Partition], int] = field(default_factory=lambda: defaultdict(int))
    copier: Producer = field(default_factory=lambda: Producer(COPIER))

    def run(self, steps: int) -> History:
        producers = [Producer("x0"), Producer("x1")]
        partitions = [(topic, number) for topic in (SOURCE, TARGET) for number in (0, 1)]
        self.note(*(Assigned(READER, number, topic, "") for topic, number in partitions))
        self.rewind()
        for _ in range(steps):
            act = self.rng.choices(["write", "end", "read", "copy", "observe"], [6, 2, 4, 2, 0.2])[0]
            if act == "write":
                self.write(self.rng.choice(producers), (SOURCE, self.rng.randrange(2)))
            elif act == "end":
                self.end(self.rng.choice(producers))
            elif act == "read":
                self.read(READER, self.rng.choice(partitions))
            elif act == "copy":
                self.copy(self.rng.randrange(2))
            else:
                self.observe(partitions)
        self.finish(producers, partitions)
        return History(self.events, frozenset({COPIER, *(each.name for each in producers)}))

    def note(self, *events: Event) -> None:
        """Adds events at a later time each."""
        for event in events:
            self.now += self.rng.uniform(0.001, 0.01)
            object.__setattr__(event, "at_s", self.now)
            self.events.append(event)

    def write(self, producer: Producer, partition: Partition, copy_of: str = "") -> None:
        if not producer.transaction:
            producer.transaction = f"{producer.full_name}-{producer.turn}"
            producer.turn += 1
            self.note(Began(producer.full_name, producer.transaction))
        record = self.write_only(producer, partition, copy_of)
        self.logs[partition].append((record, producer.transaction))
        producer.written.append((record, partition, len(self.logs[partition]) - 1))

    def write_only(self, producer: Producer, partition: Partition, copy_of: str = "") -> str:
        """A record that the broker may refuse."""
        record = record_id(producer.name, producer.sequence)
        producer.sequence += 1
        self.note(
            Sent(producer.name, record, partition[0]),
            Wrote(producer.transaction, record, partition[1], partition[0], copy_of),
        )
        return record

    def decide(self, producer: Producer, *, commits: bool) -> None:
        """What the coordinator does: a marker in each partition."""
        self.ends[producer.transaction] = commits
        for partition in {partition: None for _, partition, _ in producer.written}:
            self.logs[partition].append((MARKER, producer.transaction))

    def end(self, producer: Producer) -> bool:
        """Ends the transaction in one of many ways; whether it is committed."""
        if not producer.transaction:
            return False
        fate = self.rng.random()
        if fate < 0.5:
            self.note(Ending(producer.transaction, commits=True))
            self.decide(producer, commits=True)
            self.note(Ended(producer.transaction, COMMITTED))
            self.note(
                *(
                    Acked(producer.name, record, at[1], offset, at[0])
                    for record, at, offset in producer.written
                )
            )
        elif fate < 0.7:
            self.note(Ending(producer.transaction, commits=False))
            self.decide(producer, commits=False)
            self.note(Ended(producer.transaction, ABORTED))
        elif fate < 0.85:
            self.note(Ending(producer.transaction, commits=True))
            self.decide(producer, commits=self.rng.random() < 0.5)
            self.note(Ended(producer.transaction, UNKNOWN, "timed out"))
            self.fence(producer)
        else:
            self.decide(producer, commits=False)
            self.fence(producer)
            self.write_only(producer, (SOURCE, 0))
            self.note(
                Ending(producer.transaction, commits=True), Ended(producer.transaction, UNKNOWN, "fenced")
            )
        committed = self.ends[producer.transaction]
        producer.transaction = ""
        producer.written.clear()
        return committed

    def fence(self, producer: Producer) -> None:
        before = producer.full_name
        producer.instance += 1
        self.note(Fenced(before, producer.full_name))

    def stable(self, partition: Partition) -> int:
        """The last stable offset."""
        log = self.logs[partition]
        return next((at for at, (_, name) in enumerate(log) if name not in self.ends), len(log))

    def read(self, consumer: str, partition: Partition, most: int = 1000) -> list[str]:
        """Up to ``most`` committed records from the consumer's position on."""
        found: list[str] = []
        offset, end = self.positions[consumer, partition], self.stable(partition)
        while offset < end and len(found) < most:
            record, name = self.logs[partition][offset]
            if record != MARKER and self.ends[name]:
                self.note(Polled(consumer, partition[1], offset, record, partition[0]))
                found.append(record)
            offset += 1
        self.positions[consumer, partition] = offset
        return found

    def copy(self, number: int) -> None:
        found = self.read(COPIER, (SOURCE, number), self.rng.randint(1, 4))
        if not found:
            return
        for record in found:
            self.write(self.copier, (TARGET, number), record)
        offset = self.positions[COPIER, (SOURCE, number)]
        transaction = self.copier.transaction
        self.note(OffsetSent(transaction, COPIERS, number, offset, SOURCE))
        began_s = self.now
        if self.end(self.copier):
            self.offsets[SOURCE, number] = offset
        if any(
            isinstance(event, Ended) and event.outcome == COMMITTED
            for event in self.events[-len(found) - 1 :]
        ):
            self.note(Committed(COPIER, number, offset, SOURCE, began_s))
        else:
            self.rewind()

    def rewind(self) -> None:
        """The copier goes on at the committed offsets."""
        for number in (0, 1):
            self.positions[COPIER, (SOURCE, number)] = self.offsets.get((SOURCE, number), 0)
            self.note(Assigned(COPIER, number, SOURCE, COPIERS))

    def observe(self, partitions: list[Partition]) -> None:
        for topic, number in partitions:
            self.note(HighWatermark(number, len(self.logs[topic, number]), self.now, topic))

    def finish(self, producers: list[Producer], partitions: list[Partition]) -> None:
        for producer in producers:
            self.end(producer)
        while any(
            self.positions[COPIER, (SOURCE, number)] < len(self.logs[SOURCE, number]) for number in (0, 1)
        ):
            self.copy(0)
            self.copy(1)
        self.observe(partitions)
        for partition in partitions:
            self.read(READER, partition)
        for number in (0, 1):
            self.note(GroupOffset(COPIERS, number, self.offsets.get((SOURCE, number), -1), SOURCE))
        cut = self.rng.random() < 0.15
        for topic, number in partitions:
            log = self.logs[topic, number]
            start = len(log) // 3 if cut else 0
            self.note(StoredRange(number, start, len(log), topic))
            for offset in range(start, len(log)):
                record, name = log[offset]
                if record != MARKER and self.ends[name]:
                    self.note(Stored(number, offset, record, topic))


def legal_transactions(rng: random.Random, steps: int = 80) -> History:
    """A random legal history: two transactional producers, a copier and a reader, two partitions in and out."""
    return World(rng).run(steps)
