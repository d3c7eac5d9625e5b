"""Fixtures that several of the server's tests share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from broker.utils.scheduler import KafkaScheduler
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore


@pytest.fixture
def store() -> Iterator[ClusterStore]:
    """A cluster's metadata, in memory, without brokers and topics."""
    embedded = EmbeddedStore()
    embedded.connect(1000, threading.Event())
    cluster = ClusterStore(embedded)
    cluster.create_top_level_paths()
    yield cluster
    embedded.close()


@pytest.fixture
def scheduler() -> Iterator[KafkaScheduler]:
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    yield scheduler
    scheduler.shutdown()
