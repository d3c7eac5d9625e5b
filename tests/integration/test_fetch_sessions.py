"""Fetch sessions on the wire: what a session's answers hold, and followers that use them."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST, BrokerProcess
from rig.raw_client import RawClient
from rig.topics import create_topic, isr_sizes
from rig.wait import wait_until
from tests.support.peers import Peer
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
TOPIC = "sessions"


def fetch(client: RawClient, session_id: int, epoch: int, **partitions: int) -> Any:
    """Asks for ``p0=offset, p1=offset``; returns the response."""
    wanted = [
        {"partition": int(name[1:]), "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for name, offset in partitions.items()
    ]
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [{"topic": TOPIC, "partitions": wanted}] if wanted else [],
        "forgotten_topics_data": [],
    }
    return client.ask(ApiKey.FETCH, 11, fields)


def told(response: Any) -> list[int]:
    assert response.error_code == Errors.NONE
    return [row.partition_index for topic in response.responses for row in topic.partitions]


def sessions_of(broker: BrokerProcess) -> float:
    url = f"{broker.http_url}/metrics"  # type: ignore[attr-defined]
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    (line,) = [
        line
        for line in text.splitlines()
        if line.startswith("kafka_server_fetchsessioncache_numincrementalfetchsessions ")
    ]
    return float(line.split()[1])


def test_a_session_is_told_what_is_new_and_nothing_else(peer: Peer) -> None:
    with peer.cluster() as cluster:
        create_topic(cluster.bootstrap, TOPIC, 3, 1)
        with RawClient(HOST, cluster.brokers[1].port) as client:
            opened = fetch(client, 0, 0, p0=0, p1=0, p2=0)
            session = opened.session_id
            assert session != 0
            assert told(opened) == [0, 1, 2]
            assert told(fetch(client, session, 1)) == []
            assert client.produce(TOPIC, 1, some_records(b"new")).error_code == Errors.NONE
            news = fetch(client, session, 2)
            assert told(news) == [1]
            assert news.responses[0].partitions[0].records
            assert told(fetch(client, session, 3, p1=1)) == []
            assert fetch(client, session, 3).error_code == Errors.INVALID_FETCH_SESSION_EPOCH
            assert fetch(client, session, -1, p0=0).session_id == 0
            assert fetch(client, session, 4).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND


def test_followers_keep_in_step_by_sessions_when_their_leader_restarts(peer: Peer) -> None:
    with peer.cluster((1, 2, 3)) as cluster:
        create_topic(cluster.bootstrap, TOPIC, 6, 3)
        if peer.kind.value == "landline":
            for broker in cluster.brokers.values():
                wait_until(
                    lambda broker=broker: sessions_of(broker) >= 2,
                    timeout=60,
                    what="both followers' sessions",
                )
        cluster.brokers[1].stop()
        cluster.brokers[1].start()
        wait_until(
            lambda: set(isr_sizes(cluster.bootstrap, TOPIC).values()) == {3},
            timeout=60,
            what="all replicas in sync",
        )
