"""Apache Kafka 3.9.1 and ZooKeeper as the other tests use them: they start, answer, stop, die and come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig import kafka_dist
from rig.kafka_broker import KafkaBroker
from rig.processes import ProcessFailedError
from rig.wire import VersionRange, api_versions
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import Peer, PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_zookeeper_keeps_its_port_and_data_over_a_kill(own_zookeeper: ZooKeeperServer) -> None:
    port = own_zookeeper.port
    own_zookeeper.kill()
    assert not own_zookeeper.is_ready()
    own_zookeeper.start()
    assert own_zookeeper.is_ready()
    assert own_zookeeper.port == port


def test_kafka_answers_with_the_62_apis_of_zookeeper_mode(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with KafkaBroker(7, zookeeper.chroot(), tmp_path / "k7") as broker:
        ranges = api_versions("127.0.0.1", broker.port)
        assert len(ranges) == 62
        assert ranges[1] == VersionRange(0, 17)
        assert broker.rss_mb() > 50
        assert broker.cpu_seconds().user > 0
        broker.freeze()
        assert not broker.is_ready()
        broker.thaw()
        assert broker.stop() == 143
        broker.start()
        assert broker.is_ready()


def test_three_kafka_brokers_form_one_cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with Peer(PeerKind.KAFKA, zookeeper, tmp_path).cluster((1, 2, 3)) as cluster:
        assert all(broker.is_ready() for broker in cluster.brokers.values())
        assert len(cluster.bootstrap.split(",")) == 3


def test_a_broker_that_cannot_start_fails_with_its_log(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    broker = KafkaBroker(1, zookeeper.chroot(), tmp_path / "k", {"num.io.threads": "many"})
    with pytest.raises(ProcessFailedError, match=r"num\.io\.threads"):
        broker.start()


def test_kafka_tools_run(tmp_path: Path) -> None:
    done = kafka_dist.run_tool("kafka.tools.DumpLogSegments", "--version")
    assert kafka_dist.KAFKA_VERSION in done.stdout
