"""Random histories that a correct cluster and correct clients would produce, with everything that is allowed.

Allowed are: failed records that are in the log, late, or not at all; plain records written twice or late;
acknowledgements without an offset; members that join and leave and read again what was not committed; commits
whose answer comes much later; a reader that restarts; retention that removed the logs' starts.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.facts import Partition
from chaos.history import (
    Acked,
    Assigned,
    Committed,
    Event,
    Failed,
    GroupOffset,
    HighWatermark,
    History,
    Polled,
    Revoked,
    Sent,
    Stored,
    StoredRange,
    record_id,
)

GROUP = "g"
READER = "reader"


@dataclass
class World:
    """A cluster that makes no mistakes. Every step takes time; ``later`` has the pending actions."""

    rng: random.Random
    partitions: list[Partition]
    producers: dict[str, bool]
    """By name, whether it is idempotent."""
    events: list[Event] = field(default_factory=list)
    now: float = 100.0
    logs: dict[Partition, list[str]] = field(default_factory=lambda: defaultdict(list))
    later: list[Callable[[], None]] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    owners: dict[Partition, str] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    positions: dict[tuple[str, Partition], int] = field(default_factory=lambda: defaultdict(int))

    def run(self, steps: int) -> History:
        """Runs this many random steps, then an orderly end."""
        self.restart_reader()
        self.rebalance()
        choices = [self.produce, self.poll_group, self.poll_reader, self.commit, self.catch_up]
        rare = [self.rebalance, self.restart_reader, self.observe]
        for _ in range(steps):
            weights = [6, 3, 3, 1, 3, 0.3, 0.2, 0.2]
            self.rng.choices([*choices, *rare], weights)[0]()
        self.finish()
        return History(self.events, frozenset(name for name, once in self.producers.items() if once))

    def tick(self) -> float:
        self.now += self.rng.uniform(0.001, 0.01)
        return self.now

    def append(self, partition: Partition, record: str) -> int:
        self.logs[partition].append(record)
        return len(self.logs[partition]) - 1

    def produce(self) -> None:
        name, once = self.rng.choice(list(self.producers.items()))
        partition = self.rng.choice(self.partitions)
        record = record_id(name, self.sequences[name])
        self.sequences[name] += 1
        self.events.append(Sent(name, record, partition[0], self.tick()))
        fate = self.rng.random()
        if fate < 0.08:
            self.events.append(Failed(name, record, "timed out", partition[0], self.tick()))
            if fate < 0.04:
                self.later.append(lambda: (self.append(partition, record), None)[1])
        elif fate < 0.12:
            self.append(partition, record)
        elif fate < 0.2 and not once:
            self.write_late(name, partition, record)
        else:
            offset: int | None = self.append(partition, record)
            told = None if self.rng.random() < 0.05 else offset
            self.later.append(lambda: self.acknowledge(name, partition, record, told))

    def write_late(self, name: str, partition: Partition, record: str) -> None:
        """A plain record that is retried: written by the second attempt, and perhaps by the first too."""
        if self.rng.random() < 0.5:
            self.append(partition, record)

        def retry() -> None:
            self.acknowledge(name, partition, record, self.append(partition, record))

        self.later.append(retry)

    def acknowledge(self, name: str, partition: Partition, record: str, offset: int | None) -> None:
        self.events.append(Acked(name, record, partition[1], offset, partition[0], self.tick()))

    def catch_up(self) -> None:
        if self.later:
            self.later.pop(self.rng.randrange(len(self.later)))()

    def poll(self, consumer: str, partition: Partition, most: int) -> None:
        log = self.logs[partition]
        position = self.positions[consumer, partition]
        for offset in range(position, min(position + most, len(log))):
            self.events.append(Polled(consumer, partition[1], offset, log[offset], partition[0], self.tick()))
            self.positions[consumer, partition] = offset + 1

    def poll_group(self) -> None:
        partition = self.rng.choice(self.partitions)
        self.poll(self.owners[partition], partition, self.rng.randint(1, 5))

    def poll_reader(self) -> None:
        self.poll(READER, self.rng.choice(self.partitions), self.rng.randint(1, 5))

    def commit(self) -> None:
        partition = self.rng.choice(self.partitions)
        owner = self.owners[partition]
        position = self.positions[owner, partition]
        if position <= self.committed.get(partition, 0):
            return
        self.committed[partition] = position
        began_s = self.tick()

        def answered() -> None:
            self.events.append(Committed(owner, partition[1], position, partition[0], began_s, self.tick()))

        if self.rng.random() < 0.2:
            self.later.append(answered)
        else:
            answered()

    def rebalance(self) -> None:
        for partition, owner in self.owners.items():
            self.events.append(Revoked(owner, partition[1], partition[0], self.tick()))
        for topic, number in self.partitions:
            owner = f"m{self.rng.randrange(3)}"
            self.owners[topic, number] = owner
            self.positions[owner, (topic, number)] = self.committed.get((topic, number), 0)
            self.events.append(Assigned(owner, number, topic, GROUP, self.tick()))

    def restart_reader(self) -> None:
        self.events += [Assigned(READER, number, topic, "", self.tick()) for topic, number in self.partitions]

    def observe(self) -> None:
        for partition in self.partitions:
            began_s, end = self.tick(), len(self.logs[partition])
            self.events.append(HighWatermark(partition[1], end, began_s, partition[0], self.tick()))

    def finish(self) -> None:
        while self.later:
            self.catch_up()
        self.observe()
        for partition in self.partitions:
            everything = len(self.logs[partition])
            self.poll(READER, partition, everything)
            self.poll(self.owners[partition], partition, everything)
        self.commit()
        while self.later:
            self.catch_up()
        for topic, number in self.partitions:
            offset = self.committed.get((topic, number), -1)
            self.events.append(GroupOffset(GROUP, number, offset, topic, self.tick()))
        for topic, number in self.partitions:
            log = self.logs[topic, number]
            start = self.rng.choice([0, 0, len(log) // 3])
            self.events.append(StoredRange(number, start, len(log), topic, self.tick()))
            for offset in range(start, len(log)):
                self.events.append(Stored(number, offset, log[offset], topic, self.tick()))


def legal_history(rng: random.Random, steps: int = 120) -> History:
    """A random legal history: one or two topics of one or two partitions, three producers of both kinds."""
    partitions = [
        (f"t{topic}", number) for topic in range(rng.randint(1, 2)) for number in range(rng.randint(1, 2))
    ]
    producers = {"p0": True, "p1": False, "p2": rng.random() < 0.5}
    return World(rng, partitions, producers).run(steps)
