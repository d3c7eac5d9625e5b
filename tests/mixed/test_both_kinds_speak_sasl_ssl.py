"""Apache Kafka 3.9.1 and Landline in one cluster by SASL_SSL: each follows the other, and obeys the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psutil
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.mixed.clients import read_all
from tests.mixed.cluster import CALL_TIMEOUT_S, KAFKA, LANDLINE
from tests.mixed.secured import SecuredCluster
from tests.support.peers import PeerKind
from tests.support.secured import ADMIN, PASSWORDS

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
RECORDS = 600
TOPICS = {kind: f"made-by-{kind.value}" for kind in (KAFKA, LANDLINE)}
_numbers = count()


@pytest.fixture(scope="module")
def started(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Kafka's broker 1 and Landline's 2 and 3."""
    kinds = {1: KAFKA, 2: LANDLINE, 3: LANDLINE}
    with SecuredCluster(zookeeper, tmp_path_factory.mktemp("secured") / "brokers", kinds) as made:
        made.let_the_rig_look()
        yield made
        secrets = PASSWORDS.values()
        assert not any(secret in broker.log_text() for broker in made.brokers.values() for secret in secrets)


@pytest.fixture
def cluster(started: SecuredCluster) -> SecuredCluster:
    """With all brokers running, whatever an earlier test that failed has left."""
    started.start_what_is_down()
    return started


def write(cluster: SecuredCluster, topic: str) -> set[str]:
    """Writes to all partitions with acks=all; returns what was acknowledged: everything."""
    acked: set[str] = set()
    producer = Producer({**cluster.client(), "acks": "all", "enable.idempotence": True, "linger.ms": 5})

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acked.add((message.value() or b"").decode())

    for _ in range(RECORDS):
        number = next(_numbers)
        producer.produce(topic, str(number), partition=number % 3, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(CALL_TIMEOUT_S) == 0
    assert len(acked) == RECORDS
    return acked


def alone(cluster: SecuredCluster, kind: PeerKind) -> list[int]:
    """Stops the other kind's brokers; returns the ids of those that then lead all partitions."""
    ids = cluster.ids_of(kind)
    for broker_id in cluster.brokers.keys() - set(ids):
        cluster.brokers[broker_id].stop()

    def lead_all() -> bool:
        topics = [*TOPICS.values()]
        return {state.leader for state in cluster.states(topics).values()} <= set(ids)

    wait_until(lead_all, CALL_TIMEOUT_S, 0.2, f"{kind.value} leads all")
    return ids


def test_what_is_acknowledged_under_either_controller_is_read_from_either_side(
    cluster: SecuredCluster,
) -> None:
    acked = {}
    for controller, topic in TOPICS.items():
        cluster.force_controller(controller)
        # Kafka alone would not move a high watermark that two replicas must agree to.
        cluster.create_topic(topic, {"min.insync.replicas": "1"})
        cluster.elect_preferred(topic)
        leaders = {cluster.kinds[state.leader] for state in cluster.states([topic]).values()}
        assert leaders == {KAFKA, LANDLINE}
        acked[topic] = write(cluster, topic)
        cluster.await_in_sync([topic])
    for kind in (KAFKA, LANDLINE):
        ids = alone(cluster, kind)
        for topic, expected in acked.items():
            read = read_all(cluster.client(ADMIN, *ids), topic)
            assert {value.decode() for value in read} == expected
        cluster.start_what_is_down()
        cluster.await_in_sync(TOPICS.values())


def ports_in_use() -> set[int]:
    """The ports at which somebody is connected."""
    found = psutil.net_connections("tcp")
    return {each.laddr.port for each in found if each.status == psutil.CONN_ESTABLISHED and each.laddr}


@pytest.mark.parametrize("kind", [KAFKA, LANDLINE], ids=lambda kind: kind.value)
def test_a_controller_reaches_the_other_kind_by_the_listener_for_it(
    cluster: SecuredCluster, kind: PeerKind
) -> None:
    cluster.force_controller(kind)
    others = {
        cluster.controller_ports[broker_id] for broker_id in cluster.kinds.keys() - {*cluster.ids_of(kind)}
    }
    wait_until(lambda: others <= ports_in_use(), CALL_TIMEOUT_S, what="the controller is connected")
    cluster.create_topic(f"controlled-by-{kind.value}")
    states = cluster.states([f"controlled-by-{kind.value}"]).values()
    assert {state.leader for state in states} == cluster.kinds.keys()


@pytest.mark.parametrize("kind", [KAFKA, LANDLINE], ids=lambda kind: kind.value)
def test_a_client_with_a_wrong_password_is_refused_by_either(cluster: SecuredCluster, kind: PeerKind) -> None:
    errors: list[KafkaError] = []
    settings = {**cluster.client(ADMIN, *cluster.ids_of(kind)), "sasl.password": "wrong"}
    client = AdminClient({**settings, "error_cb": errors.append})
    wait_until(lambda: client.poll(0.1) or errors, CALL_TIMEOUT_S, what="the client is refused")
    assert errors[0].code() == KafkaError._AUTHENTICATION
