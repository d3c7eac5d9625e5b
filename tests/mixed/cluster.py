"""A cluster whose brokers are Apache Kafka's and Landline's side by side, and may change from one to the other.

Everything that a broker keeps is kept over a change of kind: its id, its port, its data directory. Who leads
and who controls is read from ZooKeeper, never assumed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ConsumerPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.protocol.api_keys import ApiKey
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import NoNodeError
from broker.zookeeper.znodes import LeaderAndIsr
from rig.brokers import HOST, BrokerProcess, Cluster
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.topics import await_leaders
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG, PeerKind

OFFSETS_TOPIC = "__consumer_offsets"
KAFKA, LANDLINE = PeerKind.KAFKA, PeerKind.LANDLINE
REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2
MIXED_CONFIG: Mapping[str, object] = {
    **CLUSTER_CONFIG,
    "inter.broker.protocol.version": "3.9",
    "min.insync.replicas": MIN_INSYNC_REPLICAS,
    "replica.lag.time.max.ms": 2000,
    # A leadership that strayed is not to come back in the middle of a step that is about another.
    "auto.leader.rebalance.enable": "false",
}
RECOVERY_TIMEOUT_S = 120.0
CALL_TIMEOUT_S = 60.0
SESSION_TIMEOUT_MS = 30_000


class MixedCluster(Cluster):
    """``kinds`` by broker id. Owner of its brokers and of a connection to ZooKeeper, in a ``with`` statement."""

    def __init__(
        self,
        zookeeper: ZooKeeperServer,
        root: Path,
        kinds: Mapping[int, PeerKind],
        config: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__({}, zookeeper.chroot("mixed"))
        self.kinds = dict(kinds)
        self._root = root
        self._config = {**MIXED_CONFIG, **(config or {})}
        self.brokers.update({each: self._make(each, kind) for each, kind in kinds.items()})
        self._store = ZooKeeperStore(self.zk_connect, SESSION_TIMEOUT_MS)
        self.znodes = ClusterStore(self._store)

    def __enter__(self) -> Self:
        super().__enter__()
        self._store.connect(SESSION_TIMEOUT_MS, threading.Event())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()
        super().__exit__(kind, error, trace)

    def log_dir(self, broker_id: int) -> Path:
        """The one data directory of the id, whoever runs on it."""
        return self._root / f"broker-{broker_id}"

    def log_dirs(self) -> dict[int, Path]:
        """All data directories by broker id."""
        return {broker_id: self.log_dir(broker_id) for broker_id in self.brokers}

    def ids_of(self, kind: PeerKind) -> list[int]:
        """The brokers of one kind, running or not."""
        return [broker_id for broker_id, own in sorted(self.kinds.items()) if own is kind]

    def admin(self) -> AdminClient:
        """librdkafka's admin client over all brokers. It must outlive its futures."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    # -- changing who runs

    def replace(self, broker_id: int, kind: PeerKind, *, kill: bool = False) -> None:
        """Ends the broker, orderly or by SIGKILL, and starts one of ``kind`` on its id, port and data."""
        if kill:
            self.brokers[broker_id].kill()
        else:
            self.brokers[broker_id].stop()
        self.start_as(broker_id, kind)

    def start_as(self, broker_id: int, kind: PeerKind) -> None:
        """Starts a broker of ``kind`` on the id, port and data of the one that has ended."""
        self.kinds[broker_id] = kind
        self.brokers[broker_id] = self._make(broker_id, kind, self.brokers[broker_id].port)
        self.brokers[broker_id].start()

    def properties(self, broker_id: int) -> Path:
        """The file that the id's broker was last started with, of either kind."""
        return self._root / f"broker-{broker_id}.properties"

    def forget(self, broker_id: int) -> None:
        """Ends a killed broker's session at once, as ZooKeeper would after the time-out: its ephemeral znodes go."""
        with suppress(NoNodeError):
            self._store.delete(znodes.broker_path(broker_id))
        if self.controller_id() == broker_id:
            with suppress(NoNodeError):
                self._store.delete(znodes.CONTROLLER)

    def bounce(self, broker_id: int, *, kill: bool = False) -> None:
        """Ends the broker and starts it again."""
        self.replace(broker_id, self.kinds[broker_id], kill=kill)

    def kill_and_start_all(self) -> None:
        """Kills all brokers together and starts all; returns when each serves."""
        for broker in self.brokers.values():
            broker.kill()
        for broker in self.brokers.values():
            broker.start_nowait()
        for broker in self.brokers.values():
            broker.wait_ready()

    def start_what_is_down(self) -> None:
        """Starts every broker that does not run."""
        for broker in self.brokers.values():
            if not broker.process.running:
                broker.start()

    def stop_all(self) -> None:
        """Stops every broker, so that their files may be read."""
        for broker in self.brokers.values():
            if broker.process.running:
                broker.stop()

    # -- topics

    def create_topic(self, topic: str, config: Mapping[str, str] | None = None) -> None:
        """One partition for each broker to prefer, every one replicated on all; returns when all lead."""
        ids = sorted(self.brokers)
        assignment = [ids[first:] + ids[:first] for first in range(len(ids))]
        admin = self.admin()
        new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=dict(config or {}))
        admin.create_topics([new])[topic].result(CALL_TIMEOUT_S)
        await_leaders(self.bootstrap, topic, len(assignment))

    def create_offsets_topic(self) -> None:
        """Lets the brokers make ``__consumer_offsets`` while all of them are there to hold a replica."""

        def made() -> bool:
            any_broker = next(iter(self.brokers.values()))
            with RawClient(HOST, any_broker.port) as client:
                answer = client.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "any", "key_type": 0})
            return int(answer.error_code) == 0

        wait_until(made, RECOVERY_TIMEOUT_S, 0.2, "groups have coordinators")
        self.await_in_sync([OFFSETS_TOPIC])

    def states(self, topics: Iterable[str]) -> dict[TopicPartition, LeaderAndIsr]:
        """Leader, ISR and epochs of the topics' partitions, as their znodes have them."""
        assignments = self.znodes.topic_assignments(list(topics))
        partitions = [TopicPartition(t, number) for t, a in assignments.items() for number in a.partitions]
        return self.znodes.partition_states(partitions)

    def state(self, topic: str, partition: int) -> LeaderAndIsr:
        """The partition's leader, ISR and epochs as its znode has them."""
        found = TopicPartition(topic, partition)
        return self.znodes.partition_states([found])[found]

    def elect_preferred(self, topic: str) -> None:
        """Gives every partition's leadership to the replica that its assignment names first."""
        assignment = self.znodes.topic_assignment(topic)
        assert assignment is not None, topic
        strayed = [
            ConsumerPartition(topic, number)
            for number, replicas in assignment.partitions.items()
            if self.state(topic, number).leader != replicas[0]
        ]
        if strayed:
            admin = self.admin()
            for error in admin.elect_leaders(ElectionType.PREFERRED, strayed).result(CALL_TIMEOUT_S).values():
                assert error is None, error

    def preferred_leaders(self, topic: str) -> dict[int, int]:
        """The partitions that each broker is to lead when all is well, one for each, by broker id."""
        assignment = self.znodes.topic_assignment(topic)
        assert assignment is not None, topic
        return {replicas[0]: number for number, replicas in assignment.partitions.items()}

    def await_in_sync(self, topics: Iterable[str]) -> None:
        """Waits until every partition of the topics has a leader and all its replicas are in sync."""
        names = list(topics)

        def in_sync() -> bool:
            states = self.states(names)
            complete = all(len(state.isr) == REPLICATION_FACTOR for state in states.values())
            return bool(states) and complete and all(state.leader >= 0 for state in states.values())

        wait_until(in_sync, RECOVERY_TIMEOUT_S, 0.2, lambda: f"all replicas in sync: {self.states(names)}")

    # -- who controls

    def controller_id(self) -> int:
        """The broker in ``/controller``, -1 while there is none."""
        claim = self.znodes.controller_claim()
        return -1 if claim is None else claim.broker_id

    def force_controller(self, kind: PeerKind) -> int:
        """Deletes ``/controller`` until a broker of ``kind`` wins the election that follows; returns its id."""

        def elected() -> bool:
            holder = self.controller_id()
            if holder >= 0 and self.kinds[holder] is not kind:
                with suppress(NoNodeError):
                    self._store.delete(znodes.CONTROLLER)
            return holder >= 0 and self.kinds[holder] is kind

        wait_until(elected, RECOVERY_TIMEOUT_S, 0.2, f"a {kind.value} broker is elected controller")
        found = self.controller_id()
        wait_until(
            lambda: self.controller().broker_id == found,
            RECOVERY_TIMEOUT_S,
            0.2,
            f"all obey controller {found}",
        )
        return found

    def _make(self, broker_id: int, kind: PeerKind, port: int | None = None) -> BrokerProcess:
        make = KafkaBroker if kind is KAFKA else LandlineBroker
        return make(broker_id, self.zk_connect, self.log_dir(broker_id), dict(self._config), port=port)
