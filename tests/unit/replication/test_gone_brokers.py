"""A leader whose process ended is known by its refused connections, a moment before the controller tells."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replication.broker_channel import BrokerChannel, RefusedError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.fetcher_parts import FetcherParts, FetcherSettings
from broker.replication.follower_fetch import Followed
from broker.replication.gone_brokers import WAIT_MS, GoneBrokers
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from rig.ports import free_port
from rig.wait import wait_until
from tests.support.clocks import ManualClock
from tests.support.logs import open_log


class Site:
    """Brokers 1 and 2 live, says the metadata."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alive = {1, 2}
        self.gone = GoneBrokers(self.clock, self.alive.__contains__)


@pytest.fixture
def site() -> Site:
    return Site()


def test_the_controllers_word_is_awaited_until_it_comes(site: Site) -> None:
    assert not site.gone.is_word_awaited()
    site.gone.note(1)
    assert site.gone.is_word_awaited()
    site.alive.discard(1)
    assert not site.gone.is_word_awaited()


def test_it_is_not_awaited_for_long_nor_twice(site: Site) -> None:
    site.gone.note(1)
    site.clock.now_ms += WAIT_MS
    assert not site.gone.is_word_awaited()
    site.gone.note(1)
    assert not site.gone.is_word_awaited()


def test_a_broker_that_answers_again_may_go_again(site: Site) -> None:
    site.gone.note(1)
    site.clock.now_ms += WAIT_MS
    site.gone.forget(1)
    assert not site.gone.is_word_awaited()
    site.gone.note(1)
    assert site.gone.is_word_awaited()


def test_a_connection_that_is_refused_says_so() -> None:
    channel = BrokerChannel("127.0.0.1", free_port(), client_id="test")
    with pytest.raises(RefusedError):
        channel.connect()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    partition: Any = SimpleNamespace(topic_partition=TopicPartition("t", 0), log=open_log(tmp_path))
    return Followed(partition, uuid.UUID(int=1), 0)


@pytest.fixture
def refusals() -> list[None]:
    return []


@pytest.fixture
def fetcher(refusals: list[None]) -> Iterator[ReplicaFetcher]:
    fetcher = ReplicaFetcher(
        FetcherParts(
            name="test",
            broker_id=2,
            broker_epoch=lambda: 1,
            address=lambda: BrokerAddress(1, "127.0.0.1", free_port()),
            make_channel=lambda address, client_id: BrokerChannel(
                address.host, address.port, client_id=client_id
            ),
            settings=FetcherSettings(),
            clock=SYSTEM_CLOCK,
            on_appended=lambda _: None,
            on_reached=lambda: None,
            on_refused=lambda: refusals.append(None),
        )
    )
    fetcher.start()
    yield fetcher
    fetcher.stop()
    fetcher.join()


def test_a_follower_notices_that_its_leader_is_gone(
    fetcher: ReplicaFetcher, followed: Followed, refusals: list[None]
) -> None:
    fetcher.add((followed,))
    wait_until(lambda: refusals, 30)
