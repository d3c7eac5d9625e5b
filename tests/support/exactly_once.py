"""A consume-transform-produce loop in transactions, and what must be true of its output."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from chaos.transacting import bounded
from rig.wait import wait_until

TIMEOUT_S = 60.0
PER_TRANSACTION = 5
ABORTED_EVERY = 4


class Copier:
    """Writes numbers to ``source`` and copies each to ``target`` exactly once, in a thread, until it is stopped. One
    transaction in four is aborted after its records were written, and its records are copied again.

    An instance that failed is fenced, and the next one has a transactional id of its own. A call of the failed one may
    hang and go on later: to Kafka 3.9's group coordinator its late offsets, though refused, take away those that its
    successor by the same id has committed (tests/differential, offsets of a fenced producer).

    Use it in a ``with`` statement, whose end raises what the thread did.
    """

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self._settings: Mapping[str, Any] = {"bootstrap.servers": bootstrap}
        self._source, self._target = source, target
        self.written = 0
        self.committed = 0
        self._instances = 0
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="copier")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Lets it copy what is written, and waits for that."""
        self._stopped.set()
        self._thread.join()

    def await_progress(self, transactions: int) -> None:
        """Waits until so many more transactions are committed."""
        goal = self.committed + transactions
        wait_until(
            lambda: self.committed >= goal or self._error is not None,
            2 * TIMEOUT_S,
            what=lambda: f"{goal} transactions are committed, of which {self.committed} are",
        )
        assert self._error is None, self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # raised where the thread is awaited
            self._error = error

    def _work(self) -> None:
        source = TopicPartition(self._source, 0)
        feeder = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 0})
        reader = Consumer(
            {
                **self._settings,
                "group.id": "copier",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        copier = self._begin()
        turn = position = 0
        reader.assign([TopicPartition(self._source, 0, position)])
        while not self._stopped.is_set() or position < self.written:
            if not self._stopped.is_set():
                for _ in range(PER_TRANSACTION):
                    feeder.produce(self._source, b"%d" % self.written, partition=0)
                    self.written += 1
                assert feeder.flush(TIMEOUT_S) == 0
            batch = [each for each in reader.consume(PER_TRANSACTION, 1.0) if each.error() is None]
            if not batch:
                continue
            turn += 1
            try:
                self._copy(copier, reader, batch, commit=turn % ABORTED_EVERY != 0)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    _ended(copier.abort_transaction)
                else:
                    self._instance()  # fences the one that failed, and ends its transaction
                    copier = self._begin()
            # Whatever became of the transaction, its offset says.
            known = wait_until(lambda: _offset(reader, source), TIMEOUT_S, what="the offset")
            position = (known or 1) - 1
            reader.seek(TopicPartition(self._source, 0, position))
        reader.close()

    def _begin(self) -> Producer:
        """An instance with an id of its own."""
        self._instances += 1
        return self._instance()

    def _instance(self) -> Producer:
        """Another one with the newest id."""
        name = f"copier-{self._instances}"
        producer = Producer({**self._settings, "transactional.id": name, "linger.ms": 0})
        _ended(producer.init_transactions)
        return producer

    def _copy(self, copier: Producer, reader: Consumer, batch: list[Message], *, commit: bool) -> None:
        copier.begin_transaction()
        for message in batch:
            copier.produce(self._target, message.value(), partition=0)
        after = TopicPartition(self._source, 0, (batch[-1].offset() or 0) + 1)
        metadata = reader.consumer_group_metadata()
        _ended(lambda timeout: copier.send_offsets_to_transaction([after], metadata, timeout))
        if commit:
            _ended(copier.commit_transaction)
            self.committed += 1
        else:
            assert copier.flush(TIMEOUT_S) == 0
            _ended(copier.abort_transaction)


def _ended(call: Any) -> None:
    """Calls it again while the client says that it may be called again."""
    failed: list[KafkaException] = []

    def done() -> bool:
        try:
            bounded(call, TIMEOUT_S / 4)  # one that hangs raises what is not retriable
        except KafkaException as error:
            if error.args[0].retriable():
                return False
            failed.append(error)
        return True

    wait_until(done, 2 * TIMEOUT_S, what="the client's call")
    if failed:
        raise failed[0]


def _offset(reader: Consumer, partition: TopicPartition) -> int | None:
    """One more than the committed offset, which is 0 as long as there is none; None if it is not known."""
    with suppress(KafkaException):
        (committed,) = reader.committed([partition], TIMEOUT_S)
        return max(int(committed.offset), 0) + 1
    return None


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """The values of partition 0 that committed transactions wrote, up to its end."""
    return [message.value() or b"" for message in committed_records(bootstrap, topic)]


def committed_records(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """The records that committed transactions wrote, up to each partition's end, in order within it."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended: set[int | None] = set()
    try:
        while len(ended) < partitions:
            message = reader.poll(TIMEOUT_S)
            assert message is not None, f"{topic}: nothing came after {len(found)} records"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        reader.close()
    return found
