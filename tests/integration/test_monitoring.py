"""What a cluster tells those who watch it: the lag of groups whose partitions are led elsewhere, and the page for
people, in a browser.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig.brokers import HOST, Cluster
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.browser import dom_of, look_at
from tests.support.monitoring import RULE_TESTS, Prometheus, prometheus_programs, queries
from tests.support.peers import Peer, PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TOPIC, PARTITIONS, RECORDS = "orders", 4, 200
GROUPS = ("readers", "auditors", "billing")


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, a topic whose partitions they share, and three groups that have read half of it."""
    with Peer(PeerKind.LANDLINE, zookeeper, tmp_path_factory.mktemp("watched")).cluster((1, 2)) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1), NewTopic("twice", 1, 2)]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"x", partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        half = RECORDS // PARTITIONS // 2
        for group in GROUPS:
            consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": group})
            offsets = [TopicPartition(TOPIC, number, half) for number in range(PARTITIONS)]
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.close()
        yield running


def metrics(broker) -> str:  # type: ignore[no-untyped-def]
    with urlopen(f"{broker.http_url}/metrics") as response:
        return response.read().decode()  # type: ignore[no-any-return]


def lags(page: str) -> dict[tuple[str, int], float]:
    found = re.findall(
        r'^kafka_consumergroup_lag\{consumergroup="(\w+)",partition="(\d+)",topic="orders"\} (\S+)$',
        page,
        re.MULTILINE,
    )
    return {(group, int(partition)): float(lag) for group, partition, lag in found}


def test_each_group_is_reported_by_one_broker_with_the_partitions_of_all_leaders(cluster: Cluster) -> None:
    half = RECORDS // PARTITIONS // 2
    expected = {(group, number): half for group in GROUPS for number in range(PARTITIONS)}

    def every_lag() -> dict[tuple[str, int], float]:
        return {key: lag for broker in cluster.brokers.values() for key, lag in lags(metrics(broker)).items()}

    wait_until(lambda: every_lag() == expected, 60, what="every lag is known")
    pages = [metrics(broker) for broker in cluster.brokers.values()]
    assert sum(len(lags(page)) for page in pages) == len(expected), "no group has two reporters"
    assert all('topic="orders"' in page for page in pages), "both brokers lead some"
    for page in pages:
        assert "\nlandline_consumergroup_lag_unknown 0.0\n" in page


def test_each_broker_says_that_zookeepers_server_serves(cluster: Cluster, zookeeper: ZooKeeperServer) -> None:
    server = zookeeper.connect_string
    for broker in cluster.brokers.values():
        wait_until(
            lambda broker=broker: (  # type: ignore[misc]
                f'\nlandline_zookeeper_server_serves{{server="{server}"}} 1.0\n' in metrics(broker)
            ),
            30,
            what="it was asked",
        )


def test_a_browser_shows_the_status_page_in_full_at_every_width_and_complains_of_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, *_ = cluster.brokers.values()
    dom, console = dom_of(f"{first.http_url}/", tmp_path)
    assert console == [], "its policy stops nothing that it needs"
    assert "Everything is well" in dom
    page = tmp_path / "page.html"
    page.write_text(dom, encoding="utf-8")
    backgrounds = set()
    for dark in (False, True):
        looked = look_at(page, (360, 1280), tmp_path, dark)
        for width, seen in looked.at.items():
            assert seen["scroll_width"] <= width
            assert seen["too_wide"] == []
            assert seen["smallest_text_px"] >= 13
            assert seen["headings"][0] == f"Broker {first.broker_id}"
            backgrounds.add((dark, seen["background"]))
    assert len(backgrounds) == 2, "the dark page is another"


@pytest.fixture(scope="module")
def programs() -> Path:
    return prometheus_programs()


@pytest.fixture(scope="module")
def prometheus(
    cluster: Cluster, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with Prometheus(programs, tmp_path_factory.mktemp("prometheus")) as running:
        running.scrape("landline", [f"{HOST}:{broker.http_port}" for broker in cluster.brokers.values()])
        yield running


def test_each_query_of_the_dashboard_finds_what_the_brokers_export(prometheus: Prometheus) -> None:
    def empty() -> set[str]:
        return {title for title, query in queries() if not prometheus.finds(query)}

    wait_until(
        lambda: empty() == {"Certificates"}, 60, what="every query finds something, but there is no TLS"
    )


def test_each_alert_fires_when_it_should_and_clears(programs: Path) -> None:
    done = subprocess.run(
        [str(programs / "promtool"), "test", "rules", str(RULE_TESTS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
