"""Fixtures that several integration tests share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, stranger
from rig.zookeeper import ZooKeeperServer
from tests.conftest import PEERS
from tests.support.controller_world import World, embedded_world, zookeeper_world
from tests.support.refusals import Refusals
from tests.support.secure_cluster import SecureCluster, secure_cluster


@pytest.fixture(params=["zookeeper", "embedded"])
def world(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[World]:
    """Controllers and brokers to play, over both stores in turn."""
    made = (
        zookeeper_world(zookeeper.chroot())
        if request.param == "zookeeper"
        else embedded_world(tmp_path / "metadata.db")
    )
    with made as world:
        yield world


@pytest.fixture
def zk_world(zookeeper: ZooKeeperServer) -> Iterator[World]:
    """The same over ZooKeeper alone, for what needs sessions of one's own."""
    with zookeeper_world(zookeeper.chroot()) as world:
        yield world


@pytest.fixture(scope="module", params=PEERS, ids=lambda kind: kind.value)
def secured(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureCluster]:
    """A module's cluster with SASL_SSL and ACLs; with ``PEERS=all`` Kafka's brokers in turn, configured alike."""
    root = tmp_path_factory.mktemp("secured")
    with secure_cluster(request.param, zookeeper.chroot(), root) as running:
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    """A standalone broker for a module's tests to ill-treat: whatever they do, no thread of it fails."""
    config: dict[str, object] = {"offsets.topic.num.partitions": 2, "auto.create.topics.enable": "false"}
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running
        assert not re.search(r"traceback=|processor_turn_failed|thread_died", running.log_text())


@pytest.fixture
def client(broker: LandlineStandalone) -> Iterator[RawClient]:
    """A connection to it that sends what it is told, right or wrong."""
    with RawClient(HOST, broker.port, from_host=stranger()) as raw:
        yield raw


@pytest.fixture
def refusals(broker: LandlineStandalone) -> Refusals:
    return Refusals(broker)
