"""One broker's ReplicaManager, fetchers and Leadership over real logs, in a cluster that a test plays."""

from __future__ import annotations

import queue
import uuid
from pathlib import Path

from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole
from broker.protocol.produce_messages import PartitionResponse
from broker.record.batch import Record, build_batch
from broker.replication.cluster_view import BrokerAddress
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.fetcher_parts import FetcherParts, FetcherSettings
from broker.replication.leadership import Leadership, LeadershipListener
from broker.replication.log_dir_mover import LogDirMover
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_selector import ReplicaSelector
from broker.replication.replication_quota import ReplicationQuota
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.store import ConnectionLossError
from tests.support.silent_leader import SilentLeader

TOPIC_ID = uuid.UUID(int=9)
ME, OTHER, THIRD = 1, 2, 3
LONG_MS = 600_000


def tp(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def state(number: int, leader: int, epoch: int, isr: tuple[int, ...]) -> PartitionRole:
    return PartitionRole(tp(number), TOPIC_ID, 1, leader, epoch, isr, epoch, (ME, OTHER, THIRD))


class Cluster:
    """A ClusterView in which everybody lives but the ``dead``."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        #: Each broker's rack; without an entry it is not on the clients' listener.
        self.racks: dict[int, str] = {}

    def rack_of(self, broker_id: int, listener: str) -> str | None:
        return self.racks.get(broker_id) if self.alive(broker_id) else None

    def alive(self, broker_id: int) -> bool:
        return broker_id not in self.dead

    def broker_address(self, broker_id: int) -> BrokerAddress:
        return BrokerAddress(broker_id, "h", 9000 + broker_id)

    def controller_address(self) -> BrokerAddress:
        return BrokerAddress(ME, "h", 9000 + ME)

    def topic_name(self, topic_id: uuid.UUID) -> str:
        return "orders"


class Broker:
    """ReplicaManager, fetchers and Leadership over real logs; ``asked`` has the partitions of each fetch."""

    def __init__(self, *directories: Path) -> None:
        self.asked: queue.Queue[list[int]] = queue.Queue()
        self.changes: list[object] = []
        self.cluster = Cluster()
        self.timer = Timer()
        self.logs = LogManager(
            [str(directory) for directory in directories],
            LogConfig(min_insync_replicas=2, file_delete_delay_ms=0),
        )
        self.logs.startup()
        self.replicas = ReplicaManager(
            ME,
            self.logs,
            self.cluster,
            self.timer,
            SYSTEM_CLOCK,
            max_lag_ms=LONG_MS,
            submit_isr_change=self.changes.append,
            selector=ReplicaSelector(ME, self.cluster, SYSTEM_CLOCK),
        )
        self.fetchers = ReplicaFetcherManager(1, self._make_fetcher)
        self.resigned: list[tuple[TopicPartition, int | None]] = []
        listener = LeadershipListener(lambda *_: None, lambda *row: self.resigned.append(row))
        self.present_topic_id: uuid.UUID | None = None
        self.store_fails = False
        self.mover = LogDirMover(
            self.logs,
            self.replicas.partition,
            self.replicas.wake_all,
            ReplicationQuota(SYSTEM_CLOCK),
            threads=1,
        )
        self.leadership = Leadership(
            self.replicas,
            self.logs,
            self.fetchers,
            listener,
            self._read_present_topic_id,
            mover=self.mover,
        )

    def _read_present_topic_id(self, _topic: str) -> uuid.UUID | None:
        if self.store_fails:
            raise ConnectionLossError("no answer")
        return self.present_topic_id

    def _make_fetcher(self, leader: int, number: int) -> ReplicaFetcher:
        return ReplicaFetcher(
            FetcherParts(
                name=f"fetcher-{number}-{leader}",
                broker_id=ME,
                broker_epoch=lambda: 1,
                address=lambda: BrokerAddress(leader, "h", 9000 + leader),
                make_channel=lambda _address, _client_id: SilentLeader(self.asked),
                settings=FetcherSettings(),
                clock=SYSTEM_CLOCK,
                on_appended=lambda _: None,
                on_reached=lambda: None,
                on_refused=lambda: None,
            )
        )

    def produce(self, number: int) -> list[PartitionResponse]:
        """acks=all; the list gets the answer when it comes."""
        answers: list[PartitionResponse] = []
        self.replicas.append_records(
            timeout_ms=LONG_MS,
            required_acks=-1,
            entries={tp(number): memoryview(bytearray(build_batch([Record(None, b"v")])))},
            callback=lambda found: answers.append(found[tp(number)]),
        )
        return answers

    def fetched_by(self, broker_id: int, number: int, offset: int, leader_epoch: int) -> None:
        params = FetchParams(broker_id, 5, 0, 1, 1 << 20)
        entry = FetchEntry(tp(number), TOPIC_ID, offset, 1 << 20, leader_epoch)
        self.replicas.fetch(params, [entry], lambda _: None)

    def close(self) -> None:
        self.mover.shutdown()
        self.fetchers.shutdown()
        self.timer.stop()
        self.logs.shutdown()
