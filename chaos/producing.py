"""The load's producers: librdkafka at a fixed rate, each writing to all partitions; plain and
idempotent ones.

They send a record once: only the library retries. If a partition does not answer and enough records are in
flight, it is skipped, so that its outage does not stop the others.
"""

from __future__ import annotations

import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing.connection import Connection

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.ack_times import Partition
from chaos.client_process import (
    Command,
    LoadPlan,
    ProcessSide,
    Records,
    Stop,
    Work,
    keep_trying,
    set_up_process,
)
from chaos.copying import NAME, Copier
from chaos.history import Acked, Failed, Sent, Trouble, record_id
from chaos.history_file import IDEMPOTENT, PLAIN, TRANSACTIONAL, HistoryWriter
from chaos.transactional_producing import TransactionalProducer
from chaos.values import value_of

TICK_S = 0.02
UNANSWERED_MAX = 200
"""Maximum of records in flight from one producer to one partition."""
BACKLOG_S = 0.5
"""Seconds of backlog that are made up for; after a longer outage the rate continues as before."""
DELIVERY_TIMEOUT_S = 120
FLUSH_S = 10.0
SETTINGS: Mapping[str, object] = {
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
    "message.send.max.retries": 2_147_483_647,
    "request.timeout.ms": 5000,
}
SETTINGS_BY_KIND: Mapping[str, Mapping[str, object]] = {
    IDEMPOTENT: {"enable.idempotence": True},
    PLAIN: {"enable.idempotence": False},
}


def kinds_of(work: Work) -> dict[str, str]:
    """The names and kinds of the producers."""
    plain = {f"plain{number}": PLAIN for number in range(work.plan.producers_plain)}
    return plain | {f"idem{number}": IDEMPOTENT for number in range(work.plan.producers_idempotent)}


def transactional_names(plan: LoadPlan) -> list[str]:
    """The names of the transactional producers, without the copier."""
    return [f"txn{number}" for number in range(plan.producers_transactional)]


def run_producers(work: Work, connection: Connection) -> None:
    """The process's main function; returns after a Stop, when nothing is in flight any more, and everything that
    transactions wrote is copied.
    """
    set_up_process(work.log_path)
    kinds, transactional = kinds_of(work), transactional_names(work.plan)
    stopping, written, ended = threading.Event(), threading.Event(), threading.Event()
    copiers = [NAME] if transactional else []
    with HistoryWriter(
        work.history_path, kinds | dict.fromkeys([*transactional, *copiers], TRANSACTIONAL)
    ) as writer:
        records = Records(writer)
        producers = [PacedProducer(name, kind, work, records, stopping) for name, kind in kinds.items()]
        writers = [
            threading.Thread(target=TransactionalProducer(name, work, records, stopping).run, daemon=True)
            for name in transactional
        ]
        threads = [threading.Thread(target=each.run, daemon=True) for each in producers]
        threads += writers
        threads += [threading.Thread(target=Copier(work, records, written).run, daemon=True) for _ in copiers]
        for thread in threads:
            thread.start()

        def obey(command: Command) -> None:
            if isinstance(command, Stop):
                stopping.set()

        def is_done() -> bool:
            if stopping.is_set() and not any(thread.is_alive() for thread in writers):
                written.set()
            if stopping.is_set() and not any(thread.is_alive() for thread in threads):
                records.flush()
                ended.set()
            return ended.is_set()

        ProcessSide(connection, records).serve(obey, is_done, ended)


class PacedProducer:
    """One producer. Everything here belongs to its thread, including the library's callbacks."""

    def __init__(self, name: str, kind: str, work: Work, records: Records, stopping: threading.Event) -> None:
        self._name = name
        self._config = work.config({**SETTINGS, **SETTINGS_BY_KIND[kind], "client.id": name})
        self._records = records
        self._stopping = stopping
        self._value_size = work.plan.value_size
        self._rate = work.plan.records_per_s / (work.plan.producers_plain + work.plan.producers_idempotent)
        self._partitions = work.partitions()
        random.Random(f"{work.plan.seed} {name}").shuffle(self._partitions)
        self._turn = 0
        self._sequence = 0
        self._under_way: Counter[Partition] = Counter()

    def run(self) -> None:
        """Sends until told to stop, then waits until each record was acknowledged or failed."""
        keep_trying(self._name, self._records, self._run_library, self._stopping)

    def _run_library(self) -> None:
        library = Producer(self._config)
        self._under_way.clear()
        try:
            self._send_at_rate(library)
        except BaseException:
            library.purge()  # It gave up: records in flight count as failed, and may be in the log.
            library.flush(FLUSH_S)
            raise
        while left := library.flush(FLUSH_S):
            self._records.add(Trouble(self._name, f"{left} records are still under way"))

    def _send_at_rate(self, library: Producer) -> None:
        due_from = time.monotonic()
        sent = 0
        while not self._stopping.wait(TICK_S):
            now = time.monotonic()
            due = int((now - due_from) * self._rate) - sent
            if due > self._rate * BACKLOG_S:
                due_from, sent, due = now, 0, int(self._rate * TICK_S)
            if due > 0 and (partition := self._next_partition()) is not None:
                room = UNANSWERED_MAX - self._under_way[partition]
                for _ in range(min(due, room)):
                    self._send(library, partition)
                    sent += 1
            library.poll(0)

    def _next_partition(self) -> Partition | None:
        """The next partition in turn that has room."""
        for _ in self._partitions:
            self._turn = (self._turn + 1) % len(self._partitions)
            partition = self._partitions[self._turn]
            if self._under_way[partition] < UNANSWERED_MAX:
                return partition
        return None

    def _send(self, library: Producer, partition: Partition) -> None:
        topic, number = partition
        record = record_id(self._name, self._sequence)
        self._sequence += 1
        self._records.add(Sent(self._name, record, topic))
        answered = functools.partial(self._answered, record, partition)
        try:
            library.produce(topic, value_of(record, self._value_size), partition=number, on_delivery=answered)
        except (KafkaException, BufferError) as error:
            self._records.failed(Failed(self._name, record, repr(error), topic))
            raise
        self._under_way[partition] += 1

    def _answered(
        self, record: str, partition: Partition, error: KafkaError | None, message: Message
    ) -> None:
        self._under_way[partition] -= 1
        if error is not None:
            self._records.failed(Failed(self._name, record, str(error), partition[0]))
            return
        offset = message.offset()
        known = offset if offset is not None and offset >= 0 else None
        self._records.acked(Acked(self._name, record, partition[1], known, partition[0]), partition)
