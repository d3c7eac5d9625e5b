"""The load's copier: it reads the transactional producers' topic with read_committed and writes each record into
another topic, in a transaction with its group's offsets. Each record must be copied exactly once.

Some of its transactions are aborted. Then, and whenever the end of one is unknown, it goes on at the group's
committed offsets.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from chaos.ack_times import Partition
from chaos.client_process import Records, Work, keep_trying
from chaos.consuming import COMMITTED_SETTINGS, close
from chaos.final_log import committed_offsets, read_ends
from chaos.history import COMMITTED, Assigned, Committed, Polled
from chaos.transacting import Identity, Instance
from chaos.values import id_of

NAME = "copier"
RECORDS_MAX = 50
POLL_S = 0.2
ABORTED = 0.2
SILENT_S = 30.0
"""A consumer that gives nothing for this many seconds is replaced: see ``consuming.DEAF_S``."""
ENDS_TIMEOUT_S = 60.0


class Copier:
    """The copier. Everything here belongs to its thread; ``written`` is set when no input is written any more."""

    def __init__(self, work: Work, records: Records, written: threading.Event) -> None:
        self._load = work
        self._records = records
        self._written = written
        self._done = threading.Event()
        self._random = random.Random(f"{work.plan.seed} {NAME}")
        self._identity = Identity(NAME, work, records, timed=False)
        self._source = work.partitions_of(work.transactions_topic)
        self._positions: dict[Partition, int] = {}
        self._ends: Mapping[Partition, int] | None = None

    def run(self) -> None:
        """Copies until everything that was written is copied."""
        keep_trying(NAME, self._records, self._copy_all, self._done)

    def _copy_all(self) -> None:
        while not self._is_done():
            instance = self._identity.instance()
            group = {"group.id": self._load.copier_group}
            consumer = Consumer(self._load.config({**COMMITTED_SETTINGS, **group}))
            try:
                self._copy(consumer, instance)
            except KafkaException as error:
                logging.getLogger(__name__).warning("the copier does not know its offsets: %r", error)
            finally:
                close(consumer)
                instance.discard()

    def _is_done(self) -> bool:
        if not self._written.is_set():
            return False
        if self._ends is None:
            ends = read_ends(self._load.bootstrap, [self._load.transactions_topic], ENDS_TIMEOUT_S)
            self._ends = {(end.topic, end.partition): end.offset for end in ends}
        return all(self._positions.get(key, 0) >= end for key, end in self._ends.items())

    def _copy(self, consumer: Consumer, instance: Instance) -> None:
        """Copies until all is done, the instance cannot be used any more, or the consumer is silent."""
        self._go_to_the_groups_offsets(consumer)
        heard_s = time.monotonic()
        while instance.usable and time.monotonic() - heard_s < SILENT_S and not self._is_done():
            messages = consumer.consume(RECORDS_MAX, POLL_S)
            if not messages:
                continue
            heard_s = time.monotonic()
            polled = self._read(messages)
            if polled and not self._copied(consumer, instance, polled):
                self._positions = {}
                if instance.usable:
                    self._go_to_the_groups_offsets(consumer)

    def _go_to_the_groups_offsets(self, consumer: Consumer) -> None:
        found = committed_offsets(consumer, [TopicPartition(*each) for each in self._source])
        self._positions = {(each.topic, each.partition): max(each.offset, 0) for each in found}
        self._records.add(
            *(Assigned(NAME, number, topic, self._load.copier_group) for topic, number in self._source)
        )
        consumer.assign([TopicPartition(*key, offset) for key, offset in self._positions.items()])

    def _read(self, messages: list[Message]) -> list[Polled]:
        """Records what was read; an end of a partition that was reached counts as a position."""
        polled: list[Polled] = []
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if topic is None or partition is None or offset is None:
                continue
            error = message.error()
            if error is None:
                polled.append(Polled(NAME, partition, offset, id_of(message.value() or b""), topic))
                self._positions[topic, partition] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._positions[topic, partition] = offset
        self._records.polled(*polled)
        return polled

    def _copied(self, consumer: Consumer, instance: Instance, polled: list[Polled]) -> bool:
        """One transaction with the copies; whether it is committed as far as is known."""
        offsets = {(each.topic, each.partition): each.offset + 1 for each in polled}
        outcome = ""
        began_s = time.monotonic()
        try:
            instance.begin()
            for each in polled:
                instance.write((self._load.copies_topic, each.partition), copy_of=each.record_id)
            instance.send_offsets(self._load.copier_group, offsets, consumer.consumer_group_metadata())
            commits = self._random.random() >= ABORTED
            if not commits:
                instance.deliver()
            began_s = time.monotonic()
            outcome = instance.end(commits=commits)
        except (KafkaException, BufferError) as error:
            instance.give_up(repr(error))
        if outcome == COMMITTED:
            self._records.add(
                *(Committed(NAME, key[1], offset, key[0], began_s) for key, offset in offsets.items())
            )
        return outcome == COMMITTED
