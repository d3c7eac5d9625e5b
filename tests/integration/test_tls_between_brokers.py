"""Two brokers whose listener for each other speaks TLS: they replicate, and elect a leader."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from broker.protocol.errors import Errors
from broker.zookeeper.client import ZooKeeperStore
from rig.brokers import HOST, unused_port
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.certificates import Authority

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def pair_of(zookeeper: ZooKeeperServer, root: Path) -> tuple[str, dict[int, LandlineBroker]]:
    """Two brokers that speak TLS with each other, and clients' plaintext."""
    chroot = zookeeper.chroot()
    authority = Authority()
    trust = authority.write_p12(root / "ca.p12", "changeit")
    made = {}
    for broker_id in (1, 2):
        own = authority.issue(f"broker-{broker_id}").write_p12(root / f"{broker_id}.p12", "changeit")
        client_port = unused_port()
        config: dict[str, object] = {
            "listeners": f"CLIENT://{HOST}:{client_port},BROKER://{HOST}:{unused_port()}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:SSL",
            "inter.broker.listener.name": "BROKER",
            "listener.name.broker.ssl.keystore.type": "PKCS12",
            "listener.name.broker.ssl.keystore.location": own,
            "listener.name.broker.ssl.keystore.password": "changeit",
            "listener.name.broker.ssl.truststore.type": "PKCS12",
            "listener.name.broker.ssl.truststore.location": trust,
            "listener.name.broker.ssl.truststore.password": "changeit",
            "listener.name.broker.ssl.client.auth": "required",
        }
        made[broker_id] = LandlineBroker(
            broker_id, chroot, root / f"broker-{broker_id}", config, port=client_port
        )
    return chroot, made


def test_two_brokers_replicate_and_elect_over_tls(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    chroot, pair = pair_of(zookeeper, tmp_path)
    with pair[1], pair[2]:
        with RawClient(HOST, pair[1].port) as client:
            wait_until(
                lambda: (
                    client.create_topic("kept", replicas=2, configs={"min.insync.replicas": "2"}).error_code
                    in (Errors.NONE, Errors.TOPIC_ALREADY_EXISTS)
                ),
                what="the topic of two replicas",
            )
        registered = registration(chroot, 1)
        assert registered["listener_security_protocol_map"] == {"CLIENT": "PLAINTEXT", "BROKER": "SSL"}
        assert [text.partition(":")[0] for text in registered["endpoints"]] == ["CLIENT", "BROKER"]
        assert (registered["host"], registered["port"]) == (HOST, pair[1].port)
        produced(pair, 300)
        wait_until(lambda: held_by_both(pair), 30, what="the follower has all of it")
        handed_over = pair[1]
        assert handed_over.stop() == 0
        with RawClient(HOST, pair[2].port) as client:
            handed_over.start()  # alone the other one is below min.insync.replicas: its high watermark stays
            produced(pair, 100)
            wait_until(lambda: held_by_both(pair), 30, what="the follower has all of it")
            wait_until(lambda: end_offset(client) == 400, 30, what="the other broker leads with all of it")
        for broker in pair.values():
            told = broker.log_text()
            assert "tls_listener" in told
            assert "changeit" not in told
            assert "traceback=" not in told


def produced(pair: dict[int, LandlineBroker], count: int) -> None:
    bootstrap = ",".join(broker.bootstrap for broker in pair.values())
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    errors: list[object] = []
    for _ in range(count):
        producer.produce("kept", b"y" * 20_000, on_delivery=lambda error, _: error and errors.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert errors == []


def end_offset(client: RawClient) -> int:
    try:
        return client.end_offset("kept")
    except AssertionError:  # the other one was elected a moment ago
        return -1


def held_by_both(pair: dict[int, LandlineBroker]) -> bool:
    sizes = {
        sum(file.stat().st_size for file in (broker.log_dir / "kept-0").glob("*.log"))
        for broker in pair.values()
    }
    return len(sizes) == 1 and min(sizes) > 2_000_000


def registration(chroot: str, broker_id: int) -> dict[str, Any]:
    store = ZooKeeperStore(chroot, 10_000)
    store.connect(10_000, threading.Event())
    try:
        data, _ = store.get(f"/brokers/ids/{broker_id}")
    finally:
        store.close()
    found: dict[str, Any] = json.loads(data)
    return found
