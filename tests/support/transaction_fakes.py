"""A transaction coordinator with manual time, a log in memory, and leaders of partitions that the test controls.

The fakes have the interfaces of KafkaScheduler, Clock, ``ReplicaManager.append_records``, Log, MetadataCache and
``AppendMarkers``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.offsets_log import OffsetsLog
from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.coordinator.transaction.loader import TransactionReplay
from broker.coordinator.transaction.marker_channel_manager import TransactionMarkerChannelManager
from broker.coordinator.transaction.markers import MarkerErrors, TxnMarker
from broker.coordinator.transaction.memory import TransactionMemory
from broker.coordinator.transaction.metadata import TransactionMetadata
from broker.coordinator.transaction.partition import PartitionParts
from broker.coordinator.transaction.partitions import each_of, partitions_of
from broker.coordinator.transaction.records import TransactionRecord
from broker.coordinator.transaction.settings import TransactionSettings
from broker.coordinator.transaction.state_manager import TransactionStateManager
from broker.coordinator.transaction.transaction_coordinator import (
    InitProducerId,
    InitProducerIdResult,
    TransactionCoordinator,
)
from broker.protocol.control_messages import PartitionInfo
from broker.protocol.errors import Errors, KafkaError
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.utils.line_budget import LineBudget
from broker.utils.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from tests.support.clocks import ManualClock
from tests.support.group_fakes import (
    START_MONOTONIC_MS,
    START_WALL_MS,
    Answers,
    FakeAppender,
    ManualScheduler,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
TIMEOUT_MS = 60_000
BROKER = 1


@dataclass
class Cluster:
    """The partitions and their leaders, and the markers that the leaders wrote. The log of a partition is the list
    of its markers, as (producer id, epoch, committed).
    """

    leaders: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys((T0, T1, T2), BROKER))
    alive: bool = True
    port: int = 1
    written: dict[TopicPartition, list[tuple[int, int, bool]]] = field(default_factory=dict)
    errors: dict[TopicPartition, Errors] = field(default_factory=dict)
    hold: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)
    requests: list[list[TxnMarker]] = field(default_factory=list)

    def alive_broker_ids(self) -> list[int]:
        return [BROKER] if self.alive else []

    def partition_info(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        leader = self.leaders.get(topic_partition)
        return (
            None
            if leader is None
            else PartitionInfo(topic_partition.partition, leader, 0, (BROKER,), (BROKER,))
        )

    def broker_address(self, broker_id: int) -> BrokerAddress | None:
        return (
            BrokerAddress(broker_id, "127.0.0.1", self.port) if broker_id == BROKER and self.alive else None
        )

    def __call__(
        self, markers: Sequence[TxnMarker], respond: Callable[[Sequence[MarkerErrors]], None]
    ) -> None:
        self.requests.append(list(markers))

        def write() -> None:
            respond(
                [
                    {partition: self._write(partition, m) for partition in each_of(m.partitions)}
                    for m in markers
                ]
            )

        if self.hold:
            self.held.append(write)
        else:
            write()

    def release(self) -> None:
        held, self.held = self.held, []
        for write in held:
            write()

    def _write(self, partition: TopicPartition, marker: TxnMarker) -> Errors:
        error = self.errors.get(partition, Errors.NONE)
        if error is Errors.NONE:
            row = (marker.producer_id, marker.producer_epoch, marker.committed)
            self.written.setdefault(partition, []).append(row)
        return error


class Harness:
    """A coordinator that owns every partition of __transaction_state, and short methods for its requests. With
    ``make_channel`` it sends the markers of its own partitions, too, by such a channel to ``cluster.port``.
    """

    ID = "tx"

    def __init__(
        self,
        partitions: int = 1,
        *,
        elect: bool = True,
        make_channel: Callable[[BrokerAddress, str], BrokerChannel] | None = None,
        **config: object,
    ) -> None:
        self._make_channel = make_channel
        self.clock = ManualClock(START_MONOTONIC_MS, START_WALL_MS - START_MONOTONIC_MS)
        self.appender = FakeAppender()
        self.cluster = Cluster()
        self.partitions = partitions
        self.producer_ids = itertools.count(1000)
        self.no_producer_ids = False
        properties = {name.replace("_", "."): str(value) for name, value in config.items()}
        self.config = BrokerConfig.from_properties({"zookeeper.connect": "z:2181", **properties})
        self.leader_epoch = 0
        self._start()
        if elect:
            self.elect(0)

    def _start(self) -> None:
        self.scheduler = ManualScheduler()
        settings = TransactionSettings.from_config(self.config)
        lines = LineBudget(self.clock.monotonic_ms, per_second=1, at_once=1)
        self.memory = TransactionMemory(settings.max_bytes, lines)
        self.markers = TransactionMarkerChannelManager(
            BROKER,
            self.cluster,
            self._make_channel or _no_channel,
            scheduler=self.scheduler,
            clock=self.clock,
            append_markers=None if self._make_channel else self.cluster,
        )
        log = OffsetsLog(self.appender, 30_000, self.clock, TRANSACTION_STATE_TOPIC)
        parts = PartitionParts(log, self.clock, self.memory, self.putting_off, self.markers.send)
        self.states = TransactionStateManager(
            parts, self.appender.log, scheduler=self.scheduler, load_bytes=settings.load_bytes
        )
        self.coordinator = TransactionCoordinator(
            settings,
            self.states,
            self.memory,
            self._take_producer_id,
            lambda: self.partitions,
            scheduler=self.scheduler,
            clock=self.clock,
        )
        self.coordinator.startup()

    def putting_off(self) -> AbstractContextManager[None]:
        """The replica manager's, of which nothing is needed here."""
        return nullcontext()

    def _take_producer_id(self, taker: Callable[[int | KafkaError], None]) -> None:
        if self.no_producer_ids:
            taker(KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            taker(next(self.producer_ids))

    def elect(self, leader_epoch: int, *, load: bool = True) -> None:
        self.leader_epoch = leader_epoch
        for partition in range(self.partitions):
            self.coordinator.on_election(partition, leader_epoch)
        if load:
            self.scheduler.run()

    def crash(self) -> None:
        """A new broker takes over with the content of the log; what the old one still does comes to nothing."""
        self.coordinator.shutdown()
        self.markers.shutdown()
        self._start()
        self.elect(self.leader_epoch + 2)

    def advance(self, duration_ms: int) -> None:
        self.clock.now_ms += duration_ms

    # -- requests

    def init(
        self,
        expected: ProducerIdAndEpoch | None = None,
        *,
        name: str = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> InitProducerIdResult:
        return self.initialising(expected, name=name, timeout_ms=timeout_ms).result

    def initialising(
        self,
        expected: ProducerIdAndEpoch | None = None,
        *,
        name: str = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Answers:
        answers = Answers()
        self.coordinator.init_producer_id(InitProducerId(name, timeout_ms, expected, answers))
        return answers

    def producer(self, *, name: str = ID, timeout_ms: int = TIMEOUT_MS) -> ProducerIdAndEpoch:
        result = self.init(name=name, timeout_ms=timeout_ms)
        assert result.error is Errors.NONE, result
        return result.producer

    def add(self, producer: ProducerIdAndEpoch, *added: TopicPartition, name: str = ID) -> Errors:
        return self.adding(producer, *added, name=name).result

    def adding(self, producer: ProducerIdAndEpoch, *added: TopicPartition, name: str = ID) -> Answers:
        answers = Answers()
        self.coordinator.add_partitions(name, producer, partitions_of(added or (T0,)), answers)
        return answers

    def end(self, producer: ProducerIdAndEpoch, *, commit: bool = True, name: str = ID) -> Errors:
        return self.ending(producer, commit=commit, name=name).result

    def ending(self, producer: ProducerIdAndEpoch, *, commit: bool = True, name: str = ID) -> Answers:
        answers = Answers()
        self.coordinator.end(name, producer, commit, answers)
        return answers

    def verify(self, producer: ProducerIdAndEpoch, *asked: TopicPartition, name: str = ID) -> list[Errors]:
        found = self.coordinator.verify_partitions(name, producer, partitions_of(asked))
        return [found[topic][number] for topic, number in asked]

    # -- what is there

    def state(self, name: str = ID) -> str:
        description = self.coordinator.describe(name)
        return description.state or description.error.name

    def metadata(self, name: str = ID) -> TransactionMetadata:
        led = self.states.find(self.coordinator.partition_for(name))
        assert not isinstance(led, Errors)
        found = led._transactions.get(name)
        assert found is not None
        return found

    def stored(self, partition: int = 0) -> dict[str, TransactionRecord]:
        """What a coordinator would read from the log."""
        replay = TransactionReplay()
        for _, batch in self.appender.log(partition).batches:
            replay.feed(memoryview(batch))
        assert replay.first_skipped is None
        return replay.transactions

    def recounted_bytes(self) -> int:
        return sum(txn.weight for led in self.states.partitions() for txn in led.transactions())


def _no_channel(address: BrokerAddress, _client_id: str) -> BrokerChannel:
    raise AssertionError(f"nothing is to be sent to {address}")


__all__ = ["BROKER", "T0", "T1", "T2", "Answers", "Cluster", "Harness"]
