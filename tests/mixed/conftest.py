"""A mixed cluster that the tests of single operations share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import KAFKA, LANDLINE, MixedCluster


@pytest.fixture(scope="session")
def started(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Kafka's broker 1 and Landline's 2 and 3."""
    kinds = {1: KAFKA, 2: LANDLINE, 3: LANDLINE}
    with MixedCluster(zookeeper, tmp_path_factory.mktemp("mixed"), kinds) as cluster:
        cluster.create_offsets_topic()
        yield cluster


@pytest.fixture
def one_kafka(started: MixedCluster) -> MixedCluster:
    """The shared cluster with all brokers running, whatever an earlier test that failed has left."""
    started.start_what_is_down()
    return started
