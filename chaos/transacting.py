"""One instance of a transactional producer: librdkafka's calls, each recorded before and after it is made."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from chaos.ack_times import Partition
from chaos.client_process import Records, Work, transactional_id
from chaos.history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Acked,
    Began,
    Ended,
    Ending,
    Fenced,
    OffsetSent,
    Sent,
    Wrote,
    record_id,
)
from chaos.values import value_of
from rig.wait import last_for

CALL_S = 20.0
"""Seconds for which a call is repeated while the library allows it. After them the transaction's end is unknown."""
SLOW_S = 4.0
"""After a slower transaction the instance is replaced. The library repeats a request that is not answered in 5 s,
and the first one may still be on its way: to end the transaction, or with older offsets. Within an epoch the
protocol lets it into the next transaction; a new instance has a new epoch, which refuses it.
"""
AGAIN_S = 0.1
HANGS_S = 10.0
"""Seconds after its timeout at which a call counts as hung. librdkafka 2.16 forgets a broker that metadata does not
name while it is down. A call that found its coordinator before waits for that forgotten connection for ever.
"""
DISCARD_S = 5.0
TRANSACTION_TIMEOUT_MS = 15_000
SETTINGS: Mapping[str, object] = {
    "acks": "all",
    "linger.ms": 5,
    "enable.idempotence": True,
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "message.timeout.ms": TRANSACTION_TIMEOUT_MS - 2000,
    "request.timeout.ms": 5000,
}


class Instance:
    """A producer that has initialized a transactional id, until a later one fences it.

    Belongs to one thread, including the library's callbacks.
    """

    def __init__(self, identity: Identity, full_name: str) -> None:
        self.full_name = full_name
        self.usable = True
        """Whether it may begin another transaction."""
        self._identity = identity
        self._records = identity.records
        self._library = Producer(identity.config)
        self._turns = count()
        self._began_s = 0.0
        self._transaction = ""
        self._written: list[tuple[str, Partition]] = []
        self._offsets: dict[str, int] = {}

    def initialize(self) -> None:
        """Fences all earlier instances, and waits until their transactions are ended."""
        repeated(self._library.init_transactions)

    def begin(self) -> None:
        """Begins a transaction."""
        self._library.begin_transaction()
        self._began_s = time.monotonic()
        self._transaction = f"{self.full_name}-{next(self._turns)}"
        self._written.clear()
        self._offsets.clear()
        self._records.add(Began(self.full_name, self._transaction))

    def write(self, partition: Partition, copy_of: str = "") -> None:
        """Passes one record to the library."""
        topic, number = partition
        record = self._identity.next_record()
        name = self._identity.name
        self._records.add(Sent(name, record, topic), Wrote(self._transaction, record, number, topic, copy_of))
        self._written.append((record, partition))
        self._library.produce(
            topic,
            value_of(record, self._identity.value_size),
            partition=number,
            on_delivery=functools.partial(self._delivered, record),
        )

    def _delivered(self, record: str, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            self._offsets[record] = offset

    def deliver(self) -> None:
        """Waits until what was written is acknowledged or failed, so that it is in the log before the end."""
        self._library.flush(CALL_S)

    def send_offsets(self, group: str, offsets: Mapping[Partition, int], metadata: object) -> None:
        """Adds a group's offsets to the transaction."""
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        self._records.add(
            *(
                OffsetSent(self._transaction, group, each.partition, each.offset, each.topic)
                for each in positions
            )
        )
        repeated(lambda left: self._library.send_offsets_to_transaction(positions, metadata, left))

    def end(self, *, commits: bool) -> str:
        """Commits or aborts; returns how it ended as far as it is known."""
        self._records.add(Ending(self._transaction, commits))
        try:
            repeated(self._library.commit_transaction if commits else self._library.abort_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort() and self._aborted():
                self._ended(ABORTED, repr(error))
                return ABORTED
            self.give_up(repr(error))
            return UNKNOWN
        self._ended(COMMITTED if commits else ABORTED)
        return COMMITTED if commits else ABORTED

    def _aborted(self) -> bool:
        try:
            repeated(self._library.abort_transaction)
        except KafkaException:
            return False
        return True

    def give_up(self, reason: str) -> None:
        """Its transaction, if one is open, has an unknown end; no other is begun."""
        self.usable = False
        if self._transaction:
            self._ended(UNKNOWN, reason)

    def _ended(self, outcome: str, reason: str = "") -> None:
        self._records.add(Ended(self._transaction, outcome, reason))
        self.usable = outcome != UNKNOWN and time.monotonic() - self._began_s < SLOW_S
        self._transaction = ""
        if outcome == COMMITTED:
            self._records.committed(
                (
                    Acked(self._identity.name, record, number, self._offsets.get(record), topic)
                    for record, (topic, number) in self._written
                ),
                timed=self._identity.timed,
            )

    def discard(self) -> None:
        """Destroys the library's producer, unless that hangs."""
        libraries = [self._library]
        del self._library

        def destroy() -> None:
            libraries[0].purge()
            libraries[0].flush(0.1)
            libraries.clear()

        destroying = threading.Thread(target=destroy, daemon=True)
        destroying.start()
        destroying.join(DISCARD_S)
        if destroying.is_alive():
            logging.getLogger(__name__).warning("%s was not destroyed in %s s", self.full_name, DISCARD_S)


class Identity:
    """A transactional id: makes its instances one after the other, and records which ones that fences."""

    def __init__(self, name: str, work: Work, records: Records, *, timed: bool) -> None:
        """``timed``: whether the test waits for this producer's progress in each partition."""
        self.name = name
        self.timed = timed
        self.records = records
        self.value_size = work.plan.value_size
        identity = {"client.id": name, "transactional.id": transactional_id(work.group, name)}
        self.config = work.config({**SETTINGS, **identity})
        self._numbers = count()
        self._sequence = count()
        self._unfenced: list[str] = []

    def next_record(self) -> str:
        """The id of another record."""
        return record_id(self.name, next(self._sequence))

    def instance(self) -> Instance:
        """An initialized instance, which takes as many attempts as necessary."""
        while True:
            found = Instance(self, f"{self.name}.{next(self._numbers)}")
            try:
                found.initialize()
            except KafkaException as error:
                logging.getLogger(__name__).warning("%s was not initialized: %r", found.full_name, error)
                found.discard()
                last_for(AGAIN_S)
                continue
            self.records.add(*(Fenced(each, found.full_name) for each in self._unfenced))
            self._unfenced = [found.full_name]
            return found


def repeated(call: Callable[[float], object]) -> None:
    """Makes a call of the library again while it may be; raises the KafkaException that is final, or the last one
    after CALL_S.
    """
    deadline = time.monotonic() + CALL_S
    while True:
        try:
            bounded(call, max(deadline - time.monotonic(), 1.0))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            last_for(AGAIN_S)
        else:
            return


def bounded(call: Callable[[float], object], timeout_s: float, hangs_s: float = HANGS_S) -> None:
    """Makes a call with its timeout; raises its KafkaException, or one for a call that does not heed the timeout.

    Such a call keeps its thread and the library's producer.
    """
    raised: list[BaseException] = []

    def make() -> None:
        try:
            call(timeout_s)
        except BaseException as error:
            raised.append(error)

    calling = threading.Thread(target=make, daemon=True)
    calling.start()
    calling.join(timeout_s + hangs_s)
    if calling.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"it hangs, {hangs_s} s after its timeout"))  # noqa: SLF001 - its public name
    if raised:
        raise raised[0]
