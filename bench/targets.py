"""The targets, each as its operator would start it: default settings, default JVM flags."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.client.tls import ClientTls
from rig.brokers import HOST, BrokerProcess, unused_port
from rig.certificates import Stores
from rig.kafka_broker import DEFAULT_JVM, KafkaBroker
from rig.kafka_dist import KAFKA_VERSION, KRAFT_VERSION
from rig.kfake_broker import KfakeBroker
from rig.kraft_broker import KraftBroker, new_cluster_id
from rig.landline_broker import REPOSITORY, LandlineBroker, LandlineStandalone
from rig.ports import free_port
from rig.zookeeper import ZooKeeperServer

# `make compiled`.
COMPILED_CHECKOUT: Path = REPOSITORY / "build" / "compiled-checkout"
# The same for all: the tests' settings are reset to the defaults, a group's first rebalance does not wait,
# and one broker cannot hold three replicas of the internal topics (see _TRANSACTION_LOG_OF_THREE).
CONFIG: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "controlled.shutdown.retry.backoff.ms": 5000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.replication.factor": 1,
    "zookeeper.session.timeout.ms": 18000,
}
# As the defaults are: with three brokers transactions are stored as safely as the records in them.
_TRANSACTION_LOG_OF_THREE: Mapping[str, object] = {
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.replication.factor": 3,
}
# Deleted topics must release their pages before the next run.
QUICK_DELETES: Mapping[str, object] = {"log.segment.delete.delay.ms": 100}


class Target(enum.Enum):
    """A measured system; the value is its name in the report."""

    LANDLINE = "Landline"
    KAFKA = f"Apache Kafka {KAFKA_VERSION}"
    KRAFT = f"Apache Kafka {KRAFT_VERSION}"
    PYTHON = "Landline, pure Python"
    KFAKE = "kfake on disk"

    @property
    def kind(self) -> Target:
        """What it is measured as: whether compiled or not, Landline is Landline."""
        return Target.LANDLINE if self is Target.PYTHON else self

    @property
    def code(self) -> Path:
        """The checkout that Landline runs from: compiled as it is deployed, if that was built, or Python."""
        compiled = COMPILED_CHECKOUT if self is Target.LANDLINE else REPOSITORY
        return compiled if compiled.is_dir() else REPOSITORY


# All but those that only keep records and serve them.
WHOLE_BROKERS: frozenset[Target] = frozenset(Target) - {Target.KFAKE}


def peers(targets: Collection[Target]) -> list[Target]:
    """Whom Landline is compared with, in the report's order: goals and verdicts are against the first, which is Kafka
    if it was measured. Beside pure Python or kfake alone there are no goals.
    """
    return [target for target in Target if target in targets and target is not Target.LANDLINE]


@dataclass(frozen=True, slots=True)
class TlsListener:
    """A broker's TLS listener, with a P-256 key: its port, and what its clients need."""

    port: int
    client: ClientTls


class Factory:
    """A factory of one target's brokers: clusters with their own chroots (or quorums), below directories of
    the caller.
    """

    def __init__(self, target: Target, zookeeper: ZooKeeperServer) -> None:
        self.target = target
        self._zookeeper = zookeeper
        self._chroots: dict[BrokerProcess, str] = {}

    def brokers(
        self, directory: Path, count: int = 1, config: Mapping[str, object] = QUICK_DELETES
    ) -> list[BrokerProcess]:
        """Returns the brokers of a new cluster, prepared as an operator does, not started."""
        settings = {**CONFIG, **(_TRANSACTION_LOG_OF_THREE if count == 3 else {}), **config}
        made: list[BrokerProcess]
        if self.target is Target.KFAKE:
            if count != 1:
                raise ValueError("kfake does not replicate")
            return [KfakeBroker(directory / "1")]
        if self.target is Target.KRAFT:
            voters = {node: free_port() for node in range(1, count + 1)}
            cluster_id = new_cluster_id()
            settings = {key: value for key, value in settings.items() if not key.startswith("zookeeper.")}
            made = [
                KraftBroker(node, voters, cluster_id, directory / str(node), settings, jvm=DEFAULT_JVM)
                for node in voters
            ]
        else:
            chroot = self._zookeeper.chroot("bench")
            made = [
                self._zookeeper_broker(number, chroot, directory / str(number), settings)
                for number in range(1, count + 1)
            ]
            self._chroots.update(dict.fromkeys(made, chroot))
        for broker in made:
            broker.prepare()
        return made

    def secured(
        self, directory: Path, config: Mapping[str, object] = QUICK_DELETES
    ) -> tuple[BrokerProcess, TlsListener]:
        """Returns the only broker of a new cluster, prepared, not started, and its TLS listener. It also has a
        PLAINTEXT one. Not for KRaft.
        """
        directory.mkdir(parents=True, exist_ok=True)
        stores, port, tls_port = Stores(directory), unused_port(), unused_port()
        settings = {
            **CONFIG,
            **config,
            **stores.configs,
            "listeners": f"PLAINTEXT://{HOST}:{port},SSL://{HOST}:{tls_port}",
        }
        chroot = self._zookeeper.chroot("bench")
        broker = self._zookeeper_broker(1, chroot, directory / "1", settings, port=port)
        self._chroots[broker] = chroot
        broker.prepare()
        return broker, TlsListener(tls_port, ClientTls(stores.ca.pem.decode()))

    def simplest(self, directory: Path) -> BrokerProcess:
        """Returns the simplest broker that serves on an empty directory: Landline needs no ZooKeeper."""
        if self.target.kind is Target.LANDLINE:
            return LandlineStandalone(directory / "data", dict(CONFIG), code=self.target.code)
        return self.brokers(directory)[0]

    def forget_session(self, broker: BrokerProcess) -> None:
        """Deletes the znodes of a killed broker's session, which would prevent its restart until the
        session expired.
        """
        if broker not in self._chroots:
            return
        client = KazooClient(self._chroots[broker])
        client.start()
        try:
            for path in (f"/brokers/ids/{broker.broker_id}", "/controller"):
                with suppress(NoNodeError):
                    client.delete(path)
        finally:
            client.stop()
            client.close()

    def _zookeeper_broker(
        self,
        number: int,
        zk_connect: str,
        log_dir: Path,
        settings: dict[str, object],
        *,
        port: int | None = None,
    ) -> BrokerProcess:
        if self.target.kind is Target.LANDLINE:
            return LandlineBroker(number, zk_connect, log_dir, settings, port=port, code=self.target.code)
        return KafkaBroker(number, zk_connect, log_dir, settings, jvm=DEFAULT_JVM, port=port)
