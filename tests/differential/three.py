"""Three brokers of each kind. The one that is asked is neither the controller nor, for some names, the coordinator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST, Cluster
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.differential.compare import Ledger
from tests.differential.normalise import Normaliser
from tests.differential.plain import Plain
from tests.differential.scripts.shapes import assigned
from tests.differential.sides import CONFIG, TIMEOUT_S, Both, Side
from tests.support.peers import Peer, PeerKind

ROLES: Final = ("asked", "controller", "third")
_OF_ONE: Final[dict[str, object]] = {
    **CONFIG,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "auto.leader.rebalance.enable": "false",
    # A broker that is stopped for a while stays in the cluster.
    "zookeeper.session.timeout.ms": 30_000,
    "replica.lag.time.max.ms": 60_000,
}
_NODES: Final = frozenset(
    {
        "node_id",
        "broker_id",
        "leader_id",
        "controller_id",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "isr",
    }
)


class _OfRoles(Normaliser):
    """Which of the three has which role is chance: ids and ports are told by it."""

    def __init__(self, cluster: Cluster, roles: Mapping[str, int]) -> None:
        asked = cluster.brokers[roles["asked"]]
        super().__init__(
            asked.port, asked.broker_id, [str(each.log_dir) for each in cluster.brokers.values()]
        )
        self._names = {broker_id: role for role, broker_id in roles.items()}
        self._ports = {
            cluster.brokers[broker_id].port: f"its port ({role})" for role, broker_id in roles.items()
        }

    def _field(self, name: str, value: Plain) -> Plain:
        if name in _NODES and isinstance(value, int):
            return self._names.get(value, value)
        if name in _NODES and isinstance(value, list) and not any(isinstance(each, dict) for each in value):
            return [self._names.get(each, each) for each in value]
        if name == "port":
            return self._ports.get(value, value)
        if name == "resource_name" and value.isdigit():
            return self._names.get(int(value), value)
        return super()._field(name, value)


class OfThree(Side):
    """A cluster, of which one broker is asked. A step says if another one is."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        controller = cluster.controller().broker_id
        asked, third = (each for each in cluster.brokers if each != controller)
        self.roles = dict(zip(ROLES, (asked, controller, third), strict=True))
        self.cluster = cluster
        super().__init__(cluster.brokers[asked], stack)
        self.world = replace(self.world, roles=self.roles)
        self.normaliser = _OfRoles(cluster, self.roles)
        self._others = {
            role: stack.enter_context(RawClient(HOST, cluster.brokers[self.roles[role]].port, TIMEOUT_S))
            for role in ROLES[1:]
        }

    def client_of(self, role: str) -> RawClient:
        """The connection to the broker of a role."""
        return self._others.get(role) or super().client_of(role)

    def prepare(self) -> None:
        """Makes the topics so that the valid requests name what the broker that is asked does not have."""
        asked, controller, third = self.roles.values()
        topics = [
            assigned(self.world.topic, [third]),
            assigned(
                "__consumer_offsets", [asked], [controller]
            ),  # the names of valid requests are the controller's
            assigned("__transaction_state", [controller], [asked]),
        ]
        body = {"topics": topics, "timeout": 30_000, "validate_only": False}
        made = self.ask(ApiKey.CREATE_TOPICS, 7, body, "controller")
        assert {row["error_code"] for row in made["topics"]} == {Errors.NONE.name}, made
        found = next(row for row in made["topics"] if row["name"] == self.world.topic)
        self.world = replace(self.world, topic_id=uuid.UUID(found["topic_id"]))
        wait_until(self._has_coordinators, 60, what="the coordinators serve")

    def _has_coordinators(self) -> bool:
        """Whether those of the names of valid requests do, and the broker that is asked knows where."""
        for key_type, name in ((0, self.world.group), (1, "tx")):
            found = self.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": [name]})
            if found["coordinators"][0]["node_id"] != self.roles["controller"]:
                return False
        described = self.ask(ApiKey.DESCRIBE_GROUPS, 0, {"groups": [self.world.group]}, "controller")
        asked = {"transactional_ids": ["tx"]}
        told = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, asked, "controller")
        return (
            described["groups"][0]["error_code"] == Errors.NONE.name
            and told["transaction_states"][0]["error_code"] == Errors.TRANSACTIONAL_ID_NOT_FOUND.name
        )


@contextmanager
def three_of_each(zookeeper: ZooKeeperServer, root: Path, ledger: Ledger) -> Iterator[Both]:
    """Kafka's three brokers and Landline's."""
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(Peer(kind, zookeeper, root).cluster((1, 2, 3), _OF_ONE)) for kind in PeerKind
        ]
        sides: list[Any] = [OfThree(cluster, stack) for cluster in clusters]
        for side in sides:
            side.prepare()
        yield Both(sides, ledger)
