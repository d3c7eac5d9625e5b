"""The load's consumers: members of one group that commit what they read, and readers that choose
all partitions.

Members leave and join at the test's request. Records are written to the history file before their offset is
committed, so that nobody continues after a record that is in no history.
"""

from __future__ import annotations

import abc
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import count
from multiprocessing.connection import Connection

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from chaos.ack_times import Partition
from chaos.client_process import (
    Command,
    Drain,
    ProcessSide,
    Rebalance,
    Records,
    Stop,
    Work,
    keep_trying,
    set_up_process,
)
from chaos.history import Assigned, Committed, Polled, Revoked
from chaos.history_file import HistoryWriter
from chaos.values import id_of

POLL_S = 0.2
POLL_RECORDS = 500
COMMIT_EVERY_S = 1.0
LEAVE_S = 30.0
CLOSE_S = 15.0
"""Seconds to wait for a close. librdkafka 2.16 may never finish it: a broker that left its metadata keeps a thread that
waits for itself. Such a consumer is abandoned, where an application's watchdog would end the process. DEAF_S
describes others.
"""
DEAF_S = 30.0
"""A consumer without a record of a partition under load for this many seconds is deaf. librdkafka 2.16 was
seen to do this in two ways. It does not ask again for committed offsets when the coordinator that it asked
was deposed (its issue 5586). And after brokers had left its metadata and come back, it had no connection to
any of them, and made none. An application's watchdog would replace such a consumer too; the report
counts them.
"""
SETTINGS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1000,
    "fetch.wait.max.ms": 250,
    "fetch.error.backoff.ms": 200,
}


READ_COMMITTED: Mapping[str, object] = {"isolation.level": "read_committed", "enable.partition.eof": True}
"""For topics with transactions. The last offset may be a marker's, so a consumer has to be told of the end."""
COMMITTED_SETTINGS: Mapping[str, object] = {**SETTINGS, **READ_COMMITTED}
COMMITTED_DEAF_S = 60.0
"""As DEAF_S, where an open transaction may hold all later records back."""


class DeafError(Exception):
    """A consumer has partitions and gets nothing from one of them."""


class Ears:
    """The times at which each partition of a consumer last delivered a record, or was assigned."""

    def __init__(self, name: str, deaf_s: float = DEAF_S) -> None:
        self._name = name
        self._deaf_s = deaf_s
        self._heard_s: dict[Partition, float] = {}

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """Sets the consumer's partitions from now on."""
        now = time.monotonic()
        self._heard_s = {(each.topic, each.partition): now for each in partitions}

    def heard(self, partitions: Iterable[Partition]) -> None:
        """Notes records. Raises DeafError when a partition has had none for too long."""
        now = time.monotonic()
        for partition in partitions:
            if partition in self._heard_s:  # it may have been revoked since
                self._heard_s[partition] = now
        for partition, since_s in self._heard_s.items():
            if now - since_s > self._deaf_s:
                raise DeafError(f"{self._name} got nothing of {partition} for {self._deaf_s} s")


class Positions:
    """The position of each group, or of each reader without a group. Its lock guards the offsets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[tuple[str, Partition], int] = {}

    def read(self, reader: str, partition: Partition, offset: int) -> None:
        """Notes a record that was read."""
        with self._lock:
            self._next[reader, partition] = max(offset + 1, self._next.get((reader, partition), 0))

    def next(self, reader: str, partition: Partition) -> int | None:
        """The first offset that was not read; None when nothing was read."""
        with self._lock:
            return self._next.get((reader, partition))

    def behind(self, reader: str, drain: Drain) -> bool:
        """Whether the reader has not reached all the ends."""
        return any((self.next(reader, key) or 0) < end for key, end in drain.ends.items())


def run_consumers(work: Work, connection: Connection) -> None:
    """The process's main function; returns after a Stop, when all consumers have left."""
    set_up_process(work.log_path)
    ended = threading.Event()
    with HistoryWriter(work.history_path) as writer:
        records = Records(writer)
        readers = _Readers(work, records)

        def is_done() -> bool:
            if readers.stopped:
                records.flush()
                ended.set()
            return readers.stopped or readers.drained()

        ProcessSide(connection, records).serve(readers.obey, is_done, ended)


class _Readers:
    """All consumers of the process. Belongs to the thread that serves commands."""

    def __init__(self, work: Work, records: Records) -> None:
        self._work = work
        self._records = records
        self._positions = Positions()
        self._names = count()
        self._drain: Drain | None = None
        self.stopped = False
        self._members = deque(self._new_member() for _ in range(work.plan.group_consumers))
        own = [f"reader{number}" for number in range(work.plan.assigned_consumers)]
        self._assigned = [AssignedReader(name, work, records, self._positions).start() for name in own]
        self._topics_of_readers = dict.fromkeys(own, work.topics)
        if self._members:
            self._topics_of_readers[work.group] = work.topics
        if work.transactional_topics:
            self._assigned.append(CommittedReader("committed0", work, records, self._positions).start())
            self._topics_of_readers["committed0"] = work.transactional_topics

    def obey(self, command: Command) -> None:
        """Executes a command of the test."""
        if isinstance(command, Rebalance) and self._members:
            self._members.popleft().leave()
            self._members.append(self._new_member())
        elif isinstance(command, Drain):
            self._drain = command
        elif isinstance(command, Stop):
            everybody = [*self._members, *self._assigned]
            for reader in everybody:
                reader.leave()
            for reader in everybody:
                reader.join()
            self.stopped = True

    def drained(self) -> bool:
        """Whether all have read up to the requested ends."""
        drain = self._drain
        return drain is not None and not any(
            self._positions.behind(name, drain.within(topics))
            for name, topics in self._topics_of_readers.items()
        )

    def _new_member(self) -> Reader:
        return GroupMember(f"member{next(self._names)}", self._work, self._records, self._positions).start()


class Reader(abc.ABC):
    """A consumer in its own thread. When it raises, another one with its name replaces it."""

    def __init__(self, name: str, work: Work, records: Records, positions: Positions) -> None:
        self._name = name
        self._work = work
        self._records = records
        self._positions = positions
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> Reader:
        """Starts reading."""
        self._thread.start()
        return self

    def leave(self) -> None:
        """Asks it to end; it leaves its group in an orderly way."""
        self._leaving.set()

    def join(self) -> None:
        """Waits for its end, for as long as leaving may take."""
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        keep_trying(self._name, self._records, self._read, self._leaving)

    @abc.abstractmethod
    def _read(self) -> None:
        """Reads with one library's consumer until it is asked to leave; may raise."""

    def _record(self, reader: str, messages: list[Message]) -> dict[Partition, int]:
        """Records the polled messages; returns the next offsets by partition."""
        polled: list[Polled] = []
        following: dict[Partition, int] = {}
        now = time.monotonic()
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if topic is None or partition is None or offset is None:
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    self._positions.read(reader, (topic, partition), offset - 1)
                continue  # A broker that is away, or the end of a partition: the library continues by itself.
            polled.append(Polled(self._name, partition, offset, id_of(message.value() or b""), topic, now))
            following[topic, partition] = offset + 1
        if polled:
            self._records.polled(*polled)
        for key, offset in following.items():
            self._positions.read(reader, key, offset - 1)
        return following


class GroupMember(Reader):
    """A member of the group; it commits about once a second and when it leaves."""

    def _read(self) -> None:
        library = Consumer(self._work.config({**SETTINGS, "group.id": self._work.group}))
        uncommitted: dict[Partition, int] = {}
        ears = Ears(self._name)

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            group = self._work.group
            ears.assigned(partitions)
            self._records.add(
                *(Assigned(self._name, each.partition, each.topic, group) for each in partitions)
            )
            for each in partitions:
                uncommitted.pop((each.topic, each.partition), None)

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            ears.assigned([])
            self._commit(library, uncommitted)
            self._records.add(*(Revoked(self._name, each.partition, each.topic) for each in partitions))

        def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
            ears.assigned([])
            uncommitted.clear()
            self._records.add(*(Revoked(self._name, each.partition, each.topic) for each in partitions))

        library.subscribe(list(self._work.topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)
        try:
            committed_s = time.monotonic()
            while not self._leaving.is_set():
                following = self._record(self._work.group, library.consume(POLL_RECORDS, POLL_S))
                uncommitted |= following
                ears.heard(following)
                if time.monotonic() - committed_s >= COMMIT_EVERY_S:
                    self._commit(library, uncommitted)
                    committed_s = time.monotonic()
        finally:
            close(library)

    def _commit(self, library: Consumer, uncommitted: dict[Partition, int]) -> None:
        if not uncommitted:
            return
        self._records.flush()
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in uncommitted.items()]
        began_s = time.monotonic()
        try:
            answers = library.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            return  # A rebalance or a failover: the next commit includes these offsets.
        uncommitted.clear()
        done = [each for each in answers if each.error is None]
        self._records.add(
            *(Committed(self._name, each.partition, each.offset, each.topic, began_s) for each in done)
        )


class AssignedReader(Reader):
    """A consumer of all partitions without a group, from their beginning; a replacement continues where
    it was.
    """

    settings: Mapping[str, object] = SETTINGS
    deaf_s = DEAF_S

    def _partitions(self) -> list[Partition]:
        return self._work.partitions()

    def _read(self) -> None:
        name = f"{self._work.group}-{self._name}"
        library = Consumer(self._work.config({**self.settings, "group.id": name}))
        chosen = [
            TopicPartition(topic, number, self._start(topic, number)) for topic, number in self._partitions()
        ]
        self._records.add(*(Assigned(self._name, each.partition, each.topic, "") for each in chosen))
        library.assign(chosen)
        ears = Ears(self._name, self.deaf_s)
        ears.assigned(chosen)
        try:
            while not self._leaving.is_set():
                ears.heard(self._record(self._name, library.consume(POLL_RECORDS, POLL_S)))
        finally:
            close(library)

    def _start(self, topic: str, number: int) -> int:
        following = self._positions.next(self._name, (topic, number))
        return OFFSET_BEGINNING if following is None else following


class CommittedReader(AssignedReader):
    """A reader of the topics with transactions, which sees committed records only."""

    settings = COMMITTED_SETTINGS
    deaf_s = COMMITTED_DEAF_S

    def _partitions(self) -> list[Partition]:
        return [each for topic in self._work.transactional_topics for each in self._work.partitions_of(topic)]


def close(library: Consumer) -> None:
    """Leaves the group in an orderly way, unless closing hangs."""
    closing = threading.Thread(target=library.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    if closing.is_alive():
        logging.getLogger(__name__).warning("a consumer did not close within %s s", CLOSE_S)
