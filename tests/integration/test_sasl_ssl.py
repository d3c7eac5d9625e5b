"""SASL over TLS, for clients and between brokers: both parts on one connection."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rig.brokers import HOST, unused_port
from rig.landline_broker import LandlineBroker
from rig.zookeeper import ZooKeeperServer
from tests.integration.test_may_stop import landline
from tests.support.certificates import Authority

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="bsecret" user_broker="bsecret" user_alice="asecret";'
)
WRONG_JAAS = JAAS.replace('password="bsecret"', 'password="wrong"')


def may_stop(broker: LandlineBroker, *overrides: str) -> tuple[int, str]:
    """`landline may-stop --dry-run` with other values of configs."""
    return landline(
        "may-stop", broker, "--dry-run", *(word for each in overrides for word in ("--override", each))
    )


def test_two_brokers_and_a_client_authenticate_over_tls(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    authority = Authority()
    trust = authority.write_pem(tmp_path / "ca.pem")
    chroot = zookeeper.chroot()
    pair, ports = [], []
    for broker_id in (1, 2):
        own = authority.issue(f"broker-{broker_id}").write_pem(tmp_path / f"{broker_id}.pem")
        plain, secure = unused_port(), unused_port()
        config: dict[str, object] = {
            "listeners": f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{secure}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trust,
        }
        pair.append(LandlineBroker(broker_id, chroot, tmp_path / f"broker-{broker_id}", config, port=plain))
        ports.append(secure)
    client = {
        "bootstrap.servers": f"{HOST}:{ports[0]}",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(trust),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "asecret",
        "log_level": 0,
    }
    with pair[0], pair[1]:
        admin = AdminClient(client)
        topic = NewTopic("kept", 2, 2, config={"min.insync.replicas": "2"})
        for future in admin.create_topics([topic]).values():
            future.result(30)
        producer = Producer({**client, "acks": "all"})
        for _ in range(500):
            producer.produce("kept", b"x" * 5_000)
            producer.poll(0)
        assert producer.flush(60) == 0
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["kept"])
        got, deadline = 0, time.monotonic() + 60
        while got < 500 and time.monotonic() < deadline:
            got += sum(1 for message in consumer.consume(500, 1) if not message.error())
        consumer.close()
        assert got == 500
        with pytest.raises(KafkaException):
            AdminClient({**client, "sasl.password": "wrong"}).list_topics(timeout=3)
        assert may_stop(pair[0]) == (0, "broker 1 may stop\n")
        # As the restarted broker would: by SASL_SSL, with what its properties say.
        code, words = may_stop(pair[0], f"listener.name.sasl_ssl.plain.sasl.jaas.config={WRONG_JAAS}")
        assert (code, "refused the login" in words) == (75, True), words
        code, words = may_stop(pair[0], "ssl.truststore.location=/none")
        assert (code, "ssl.truststore.location" in words) == (78, True), words
        assert landline("may-stop", pair[0], "--holder", "deploy")[0] == 0
        pair[0].stop()
        code, words = landline("await-return", pair[0], "--holder", "deploy", "--within", "0")
        assert (code, "has not registered" in words) == (75, True), words
        pair[0].start()
        assert landline("await-return", pair[0], "--holder", "deploy")[0] == 0
        for broker in pair:
            assert "asecret" not in broker.log_text()
            assert "bsecret" not in broker.log_text()
