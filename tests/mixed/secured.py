"""A mixed cluster whose brokers speak SASL_SSL to each other and to clients, with SCRAM and Kafka's AclAuthorizer.

The controller's requests have a listener of their own. A PLAINTEXT listener stays for the rig, which only
looks: its clients may describe topics and groups.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from rig.brokers import HOST, BrokerProcess, unused_port
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import CALL_TIMEOUT_S, KAFKA, MixedCluster
from tests.support.certificates import Authority
from tests.support.peers import PeerKind
from tests.support.secured import (
    ADMIN,
    AUTHORIZER,
    BROKER,
    PASSWORDS,
    SHA_512,
    START_TIMEOUT_S,
    TINY_JVM,
    jaas,
)

USERS = (ADMIN, BROKER)


class SecuredCluster(MixedCluster):
    """Its users are in ZooKeeper before the first broker starts: the brokers log in to each other as one of them."""

    def __init__(self, zookeeper: ZooKeeperServer, root: Path, kinds: Mapping[int, PeerKind]) -> None:
        self.secure_ports = {broker_id: unused_port() for broker_id in kinds}
        self.controller_ports = {broker_id: unused_port() for broker_id in kinds}
        self._files = root / "certificates"
        self._files.mkdir(parents=True)
        authority = Authority()
        self.trust = authority.write_pem(self._files / "ca.pem")
        for broker_id in kinds:
            authority.issue(f"broker-{broker_id}").write_pem(self._key_store(broker_id))
        super().__init__(zookeeper, root, kinds)
        for user in USERS:
            where = ["--zookeeper", self.zk_connect, "--user", user, "--mechanism", SHA_512]
            argv = [*COMMAND, "credentials", "set", *where]
            subprocess.run(argv, cwd=REPOSITORY, input=f"{PASSWORDS[user]}\n", text=True, check=True)

    def client(self, user: str = ADMIN, *broker_ids: int) -> dict[str, str | int | float | bool]:
        """Settings of librdkafka's clients; they begin at these brokers, or at all."""
        ports = [self.secure_ports[each] for each in broker_ids or self.secure_ports]
        return {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": SHA_512,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "log_level": 0,
        }

    def admin(self) -> AdminClient:
        return AdminClient(self.client())

    def let_the_rig_look(self) -> None:
        """Lets clients of the PLAINTEXT listener describe topics and groups."""
        acls = [
            AclBinding(
                kind,
                "*",
                ResourcePatternType.LITERAL,
                "User:ANONYMOUS",
                "*",
                AclOperation.DESCRIBE,
                AclPermissionType.ALLOW,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        admin = self.admin()
        for created in admin.create_acls(acls).values():
            created.result(CALL_TIMEOUT_S)

    def _key_store(self, broker_id: int) -> Path:
        return self._files / f"{broker_id}.pem"

    def _make(self, broker_id: int, kind: PeerKind, port: int | None = None) -> BrokerProcess:
        port = port or unused_port()
        ports = {
            "PLAINTEXT": port,
            "SASL_SSL": self.secure_ports[broker_id],
            "CONTROLLER": self.controller_ports[broker_id],
        }
        config: dict[str, object] = {
            **self._config,
            "listeners": ",".join(f"{name}://{HOST}:{each}" for name, each in ports.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
            "control.plane.listener.name": "CONTROLLER",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": SHA_512,
            "sasl.enabled.mechanisms": SHA_512,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas("scram.Scram"),
            "listener.name.controller.scram-sha-512.sasl.jaas.config": jaas("scram.Scram"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._key_store(broker_id),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trust,
            "authorizer.class.name": AUTHORIZER,
            "super.users": ";".join(f"User:{user}" for user in USERS),
        }
        log_dir = self.log_dir(broker_id)
        made: BrokerProcess
        if kind is KAFKA:
            made = KafkaBroker(broker_id, self.zk_connect, log_dir, config, jvm=TINY_JVM, port=port)
        else:
            made = LandlineBroker(broker_id, self.zk_connect, log_dir, config, port=port)
        made.start_timeout_s = START_TIMEOUT_S
        return made
