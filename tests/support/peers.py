"""The two peers that a protocol test can run against, Apache Kafka and Landline, behind one small factory."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

from rig.brokers import BrokerProcess, Cluster
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import LandlineBroker
from rig.zookeeper import ZooKeeperServer

CLUSTER_CONFIG: dict[str, object] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "replica.lag.time.max.ms": 5000,
}


class PeerKind(enum.Enum):
    """The kind of broker that a test runs against; the value is the test's parameter id."""

    KAFKA = "kafka"
    LANDLINE = "landline"


class Peer:
    """A factory of brokers of one kind, each cluster with its own ZooKeeper chroot, below ``root``."""

    def __init__(self, kind: PeerKind, zookeeper: ZooKeeperServer, root: Path) -> None:
        self.kind = kind
        self._zookeeper = zookeeper
        self._root = root

    def broker(
        self, broker_id: int, zk_connect: str, log_dir: Path, config: dict[str, object] | None = None
    ) -> BrokerProcess:
        """Returns one broker, not started."""
        if self.kind is PeerKind.KAFKA:
            return KafkaBroker(broker_id, zk_connect, log_dir, config)
        return LandlineBroker(broker_id, zk_connect, log_dir, config)

    def cluster(self, broker_ids: Sequence[int] = (1,), config: dict[str, object] | None = None) -> Cluster:
        """Returns a cluster, not started; use it in a ``with`` statement."""
        zk_connect = self._zookeeper.chroot(self.kind.value)
        base = CLUSTER_CONFIG if len(broker_ids) >= 3 else {}
        root = self._root / zk_connect.rpartition("/")[2]
        brokers = {
            broker_id: self.broker(
                broker_id, zk_connect, root / f"broker-{broker_id}", {**base, **(config or {})}
            )
            for broker_id in broker_ids
        }
        return Cluster(brokers, zk_connect)
