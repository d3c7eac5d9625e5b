"""A Kafka broker with users, ACLs and data is replaced by Landline on the same files, and Landline by Kafka again.

Landline reads Kafka's own server.properties: the JAAS strings, the authorizer and the super users in it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.sasl.scram_client import ScramTokens
from broker.security.acls import AclOperation, PatternType, Permission, ResourceType
from rig.brokers import HOST
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.processes import ManagedProcess
from rig.raw_client import RawClient
from rig.zookeeper import ZooKeeperServer
from tests.mixed.clients import read_all
from tests.support.acl_matrix import Place, await_services, questions, told
from tests.support.peers import PeerKind
from tests.support.secured import (
    ADMIN,
    GUEST,
    PASSWORDS,
    SHA_256,
    SHA_512,
    START_TIMEOUT_S,
    Acl,
    SecuredBroker,
    await_scram_login,
    create_acls,
    scram_login,
    secured_broker,
    set_scram_user,
)
from tests.support.valid_requests import World

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ACLS = [
    Acl(TOPIC, "topic", AclOperation.READ),
    Acl(TOPIC, "top", AclOperation.WRITE, PatternType.PREFIXED),
    Acl(TOPIC, "topic-new", AclOperation.ALL),
    Acl(TOPIC, "topic-new", AclOperation.CREATE, permission_type=Permission.DENY),
    Acl(TOPIC, "*", AclOperation.DESCRIBE_CONFIGS, principal="User:*"),
    Acl(GROUP, "group", AclOperation.READ),
]
# What brokers ask each other depends on epochs, and would change the cluster.
OF_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
QUESTIONS = [question for question in questions() if question.key not in OF_BROKERS]
RECORDS = 200


class Successor(LandlineBroker):
    """Landline on the data directory and the properties file of a broker that has ended, both as they are."""

    def __init__(self, of: SecuredBroker) -> None:
        before = of.process
        super().__init__(before.broker_id, of.zk_connect, before.log_dir, port=before.port)
        own = {
            "landline.http.host": HOST,
            "landline.http.port": self.http_port,
            "landline.log.dir.min.free.bytes": 64 << 20,
        }
        overrides = [word for key, value in own.items() for word in ("--override", f"{key}={value}")]
        self.start_timeout_s = START_TIMEOUT_S
        self.process = ManagedProcess(
            f"Landline instead of {before.process.title}",
            lambda: [*COMMAND, "start", str(self._properties), *overrides],
            before.log_dir.with_name("successor.log"),
            cwd=REPOSITORY,
        )

    @property
    def properties(self) -> Path:
        """Kafka's own file."""
        return self._properties

    def _prepare(self) -> None:
        """Nothing: the file is there."""


@contextmanager
def guest_of(broker: SecuredBroker) -> Iterator[RawClient]:
    """By SCRAM: the user is in ZooKeeper, not in the file."""
    with broker.connect() as client:
        assert scram_login(client, ScramTokens(SHA_256, GUEST, PASSWORDS[GUEST])) is Errors.NONE
        yield client


def decisions(broker: SecuredBroker, place: Place) -> dict[str, list[str]]:
    with broker.login(ADMIN) as admin:
        await_services(admin, place.world)
    with guest_of(broker) as guest:
        return {str(question): told(guest, question, place) for question in QUESTIONS}


def write(broker: SecuredBroker, first: int) -> None:
    refused: list[object] = []
    producer = Producer({**broker.confluent(GUEST, SHA_512), "acks": "all", "linger.ms": 5})
    for number in range(first, first + RECORDS):
        producer.produce("topic", str(number), on_delivery=lambda error, _: refused.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert set(refused) == {None}


def read(broker: SecuredBroker) -> list[int]:
    """The numbers; some of the questions have written other records."""
    values = read_all(broker.confluent(GUEST, SHA_256), "topic")
    return [int(value) for value in values if value.isdigit()]


def test_landline_takes_over_from_kafka_and_gives_back(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    kafka = secured_broker(PeerKind.KAFKA, 1, zookeeper.chroot("swap"), tmp_path)
    with kafka.process:
        for mechanism in (SHA_256, SHA_512):
            set_scram_user(kafka, GUEST, mechanism)
            await_scram_login(kafka, GUEST, mechanism)
        with kafka.login(ADMIN) as admin:
            assert create_acls(admin, ACLS) == [Errors.NONE] * len(ACLS)
            made = admin.create_topic("topic")
            assert made.error_code == Errors.NONE
        place = Place(World(1, port=kafka.process.port, topic_id=made.topic_id), kafka.sasl_port, "", b"")
        write(kafka, 0)
        before = decisions(kafka, place)
        kafka.process.stop()
        successor = Successor(kafka)
        check = subprocess.run(
            [*COMMAND, "check-config", str(successor.properties)], cwd=REPOSITORY, check=False
        )
        assert check.returncode == 0
        with successor:
            landline = SecuredBroker(PeerKind.LANDLINE, successor, kafka.sasl_port, kafka.zk_connect)
            assert read(landline) == [*range(RECORDS)]
            write(landline, RECORDS)
            between = decisions(landline, place)
            assert successor.stop() == 0
            assert "traceback=" not in successor.log_text()
            assert not any(secret in successor.log_text() for secret in PASSWORDS.values())
        kafka.process.start()
        assert read(kafka) == [*range(2 * RECORDS)]
        after = decisions(kafka, place)
    assert after == before
    assert between == before
