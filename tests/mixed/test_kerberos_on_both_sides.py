"""Apache Kafka's and Landline's brokers log in to each other by Kerberos, and answer clients alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST, BrokerProcess, unused_port
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.topics import await_leaders
from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import MIXED_CONFIG
from tests.support import kerberos
from tests.support.kerberos import SERVICE, Realm, repeated
from tests.support.sasl_frames import log_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TOPIC = "kept"


@dataclass
class Pair:
    """A broker of each kind, and the ports of their GSSAPI listeners."""

    kafka: BrokerProcess
    landline: BrokerProcess
    sasl_ports: tuple[int, int]
    realm: Realm


@pytest.fixture(scope="module")
def pair(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("kerberos")
    chroot = zookeeper.chroot()
    with Realm(root / "kdc") as realm, pytest.MonkeyPatch.context() as patch:
        realm.join(patch)
        realm.add(SERVICE, "kafka/elsewhere", "alice", "a/b/c")
        ports = [unused_port() for _ in range(4)]
        config = [
            {
                **MIXED_CONFIG,
                "min.insync.replicas": 2,
                **realm.listeners(*ports[at : at + 2]),
            }
            for at in (0, 2)
        ]
        kafka = KafkaBroker(1, chroot, root / "kafka", config[0], port=ports[0])
        landline = LandlineBroker(2, chroot, root / "landline", config[1], port=ports[2])
        with kafka, landline:
            yield Pair(kafka, landline, (ports[1], ports[3]), realm)
            assert "traceback=" not in landline.process.log_text()


def test_either_kind_follows_the_other(pair: Pair) -> None:
    admin = AdminClient({"bootstrap.servers": pair.landline.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 2, 2)]).values():
        future.result(60)
    await_leaders(pair.landline.bootstrap, TOPIC, 2)
    leaders = {part.leader for part in admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()}
    assert leaders == {1, 2}
    producer = Producer({"bootstrap.servers": pair.landline.bootstrap, "acks": "all"})
    for partition in (0, 1):
        for _ in range(100):
            producer.produce(TOPIC, b"x" * 1000, partition=partition)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    "host", [kerberos.HOST, "elsewhere"], ids=["a good ticket", "a ticket for another service"]
)
def test_clients_are_answered_alike(pair: Pair, host: str) -> None:
    answers = [outcome(pair, port, "alice", host) for port in pair.sasl_ports]
    assert answers[0] == answers[1]
    assert answers[0][-1] is (host == kerberos.HOST)


def test_a_principal_without_a_user_is_served_by_neither(pair: Pair) -> None:
    """Kafka says that the authentication was good, and closes the connection at its first request."""
    assert [outcome(pair, port, "a/b/c", kerberos.HOST)[-1] for port in pair.sasl_ports] == [False, False]


def test_a_repeated_token_is_refused_alike(pair: Pair) -> None:
    answers = []
    for port in pair.sasl_ports:
        with RawClient(HOST, port) as raw, RawClient(HOST, port) as thief:
            first, second = repeated(pair.realm.only_token("alice"), raw, thief)
        assert first.error_code == Errors.NONE
        answers.append((second.error_code, second.error_message, second.auth_bytes))
    assert answers[0] == answers[1]
    assert answers[0][0] == Errors.SASL_AUTHENTICATION_FAILED


def outcome(pair: Pair, port: int, name: str, host: str) -> tuple[object, ...]:
    """The last answer of an authentication, and whether a request is served then."""
    with RawClient(HOST, port) as raw:
        said = log_in(raw, "GSSAPI", pair.realm.tokens(name, host))
        answer = (said.error_code, said.error_message, said.auth_bytes, said.session_lifetime)
        try:
            raw.ask(ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": False})
        except ConnectionError:
            return *answer, False
        return *answer, True
