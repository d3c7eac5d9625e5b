"""Requests that only brokers send, from a client: refused, and nothing of them done; brokers go on among themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FETCH
from rig.brokers import HOST, unused_port
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support import valid_requests
from tests.support.valid_requests import World, some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC = "kept"
CONTROLLERS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
BROKERS = (ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS)
VERSIONS = {
    ApiKey.LEADER_AND_ISR: 7,
    ApiKey.STOP_REPLICA: 4,
    ApiKey.UPDATE_METADATA: 8,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.ALTER_PARTITION: 3,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
}


Pair = Mapping[int, tuple[LandlineBroker, int]]


def pair_of(
    zookeeper: ZooKeeperServer, root: Path, trust: str, speak_by: Mapping[int, str]
) -> dict[int, tuple[LandlineBroker, int]]:
    """Two brokers, not started, with a listener for clients and one for brokers; with the latter's port."""
    chroot = zookeeper.chroot()
    made: dict[int, tuple[LandlineBroker, int]] = {}
    for broker_id, listener in speak_by.items():
        client_port, broker_port = unused_port(), unused_port()
        config: dict[str, object] = {
            "listeners": f"CLIENT://{HOST}:{client_port},BROKER://{HOST}:{broker_port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT",
            "inter.broker.listener.name": listener,
            "landline.inter.broker.peers": trust,
        }
        broker = LandlineBroker(broker_id, chroot, root / f"broker-{broker_id}", config, port=client_port)
        made[broker_id] = (broker, broker_port)
    return made


@pytest.fixture(scope="module", params=["listener", "registered"])
def pair(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Pair]:
    """Brokers that speak by the listener between them, which alone they trust: because it is so configured,
    or because both registered as such.
    """
    root = tmp_path_factory.mktemp("two-listeners")
    made = pair_of(zookeeper, root, request.param, {1: "BROKER", 2: "BROKER"})
    with made[1][0], made[2][0]:
        with RawClient(HOST, made[1][0].port) as client:
            wait_until(
                lambda: (
                    client.create_topic(TOPIC, replicas=2, configs={"min.insync.replicas": "2"}).error_code
                    in (Errors.NONE, Errors.TOPIC_ALREADY_EXISTS)
                ),
                what="the topic of two replicas",
            )
        yield made


def leader_of(pair: Pair) -> tuple[LandlineBroker, int]:
    """The broker that takes records with both replicas in sync, and its port for brokers."""

    def found() -> int | None:
        for broker_id, (broker, _) in pair.items():
            with RawClient(HOST, broker.port) as client:
                if client.produce(TOPIC, 0, some_records(b"kept")).error_code == Errors.NONE:
                    return broker_id
        return None

    leader = wait_until(found, what="a record on both replicas")
    return pair[leader]


def fields(api_key: ApiKey, broker: LandlineBroker) -> Mapping[str, Any]:
    world = replace(
        World(), broker_id=broker.broker_id, controller_epoch=1_000_000, port=broker.port, topic=TOPIC
    )
    return valid_requests.fields(api_key, VERSIONS[api_key], world)


@pytest.mark.parametrize("api_key", CONTROLLERS + BROKERS)
def test_request_of_a_broker_is_refused_to_a_client_and_nothing_is_done(api_key: ApiKey, pair: Pair) -> None:
    broker, _ = leader_of(pair)
    with RawClient(HOST, broker.port) as client:
        answer = client.ask(api_key, VERSIONS[api_key], fields(api_key, broker))
        assert answer.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
        assert client.is_open()
    leader_of(pair)  # which still commits on both


def test_fetch_of_a_replica_is_refused_to_a_client(pair: Pair) -> None:
    broker, broker_port = leader_of(pair)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    asked = {
        "replica_id": 3 - broker.broker_id,
        "max_wait": 0,
        "min_bytes": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [wanted]}],
        "forgotten_topics_data": [],
    }
    with RawClient(HOST, broker.port) as client, RawClient(HOST, broker_port) as peer:
        refused = client.ask(FETCH, 11, asked)
        assert refused.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
        assert not refused.responses
        assert peer.ask(FETCH, 11, asked).error_code == Errors.NONE
        assert client.fetch(TOPIC, 0, 0).error_code == Errors.NONE


def test_offsets_that_only_replicas_may_see_are_refused_to_a_client(
    pair: Pair,
) -> None:
    broker, _ = leader_of(pair)
    asked = {
        "replica_id": 3 - broker.broker_id,
        "isolation_level": 0,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }
    with RawClient(HOST, broker.port) as client:
        answer = client.ask(ApiKey.LIST_OFFSETS, 4, asked).topics[0].partitions[0]
        assert answer.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
        assert client.end_offset(TOPIC) > 0


def test_refusal_has_a_line_that_names_peer_and_key(pair: Pair) -> None:
    broker, _ = leader_of(pair)

    def told() -> bool:
        with RawClient(HOST, broker.port) as client:
            client.ask(ApiKey.STOP_REPLICA, 4, fields(ApiKey.STOP_REPLICA, broker))
        lines = [line for line in broker.log_text().splitlines() if " broker_request_refused " in line]
        return any("landline.inter.broker.peers" in line and "stop_replica" in line for line in lines)

    wait_until(told, what="a line about the refusal")


def test_brokers_that_go_over_one_by_one_hear_each_other_by_both_listeners_until_all_are_over(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Broker 1 speaks by the new listener already, broker 2 still by that of clients: replicas stay in sync,
    whoever leads and whoever controls.
    """
    made = pair_of(zookeeper, tmp_path, "registered", {1: "BROKER", 2: "CLIENT"})
    with made[1][0], made[2][0], RawClient(HOST, made[1][0].port) as client:
        wait_until(
            lambda: (
                client.create_topic(
                    TOPIC, partitions=2, replicas=2, configs={"min.insync.replicas": "2"}
                ).error_code
                in (Errors.NONE, Errors.TOPIC_ALREADY_EXISTS)
            ),
            what="the topic of two replicas",
        )
        for partition in (0, 1):  # one is led by each
            wait_until(
                lambda partition=partition: any(
                    produced(broker, partition) == Errors.NONE for broker, _ in made.values()
                ),
                what=f"a record of partition {partition} on both replicas",
            )
        assert not any(" broker_request_refused " in broker.log_text() for broker, _ in made.values())


def produced(broker: LandlineBroker, partition: int) -> int:
    with RawClient(HOST, broker.port) as client:
        return int(client.produce(TOPIC, partition, some_records(b"kept")).error_code)
