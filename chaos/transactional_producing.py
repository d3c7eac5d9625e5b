"""The load's transactional producers: each transaction has records in several partitions, and is committed or
aborted at random. Now and then a second instance takes the transactional id over, and the first one tries to
go on with its transaction.
"""

from __future__ import annotations

import random
import threading

from confluent_kafka import KafkaException

from chaos.client_process import Records, Work, keep_trying
from chaos.transacting import Identity, Instance

RECORDS_MAX = 6
ABORTED = 0.25
TAKEN_OVER = 0.05
"""The shares of transactions that are aborted, and whose producer is fenced in the middle."""


class TransactionalProducer:
    """One transactional id. Everything here belongs to its thread, including the library's callbacks."""

    def __init__(self, name: str, work: Work, records: Records, stopping: threading.Event) -> None:
        self._name = name
        self._records = records
        self._stopping = stopping
        self._random = random.Random(f"{work.plan.seed} {name}")
        self._partitions = work.partitions_of(work.transactions_topic)
        self._pause_s = 1.0 / work.plan.transactions_per_s
        self._identity = Identity(name, work, records, timed=True)

    def run(self) -> None:
        """Makes transactions until told to stop. Then a last instance makes sure that all of them are ended."""
        keep_trying(self._name, self._records, self._work, self._stopping)
        self._identity.instance().discard()

    def _work(self) -> None:
        while not self._stopping.is_set():
            instance = self._identity.instance()
            while instance.usable and not self._stopping.wait(self._random.uniform(0.5, 1.5) * self._pause_s):
                instance = self._next(instance)
            instance.discard()

    def _next(self, instance: Instance) -> Instance:
        """One transaction; returns the instance for the next one."""
        try:
            instance.begin()
            for _ in range(self._random.randint(1, RECORDS_MAX)):
                instance.write(self._random.choice(self._partitions))
            if self._random.random() < TAKEN_OVER:
                return self._taken_over(instance)
            commits = self._random.random() >= ABORTED
            if not commits:
                instance.deliver()
            instance.end(commits=commits)
        except (KafkaException, BufferError) as error:
            instance.give_up(repr(error))
        return instance

    def _taken_over(self, zombie: Instance) -> Instance:
        """Another instance fences this one, which has an open transaction and knows nothing of it."""
        zombie.deliver()
        successor = self._identity.instance()
        try:
            zombie.write(self._random.choice(self._partitions))
            zombie.end(commits=True)
        except (KafkaException, BufferError) as error:
            zombie.give_up(repr(error))
        zombie.discard()
        return successor
