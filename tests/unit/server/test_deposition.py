"""A broker that crashed waits until it leads nothing that others could lead; it never waits for itself alone."""

from __future__ import annotations

import threading
import time

import pytest

from broker.server.registration.deposition import await_deposition, led_though_others_could
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr

TP = TopicPartition("t", 0)
FAR_S = 60.0


def state(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 3, isr, 1)


@pytest.mark.parametrize(
    ("present", "live", "waits"),
    [
        (state(1, 1, 2), {2}, True),
        (state(1, 1, 2), {3}, False),  # broker 2 is not there to lead
        (state(1, 1, 2), {1}, False),  # our own dead session's registration
        (state(1, 1), {2, 3}, False),  # only we have all records
        (state(2, 1, 2), {2}, False),
        (state(-1, 1), {2}, False),
    ],
)
def test_it_waits_only_for_who_is_there_and_in_the_isr(present, live, waits):
    assert bool(led_though_others_could(1, {TP: present}, live)) is waits


@pytest.fixture
def store():
    cluster = ClusterStore(EmbeddedStore())
    cluster.create_top_level_paths()
    for path in ("/brokers/topics/t", "/brokers/topics/t/partitions", znodes.partition_path(TP)):
        cluster.store.create(path)
    return cluster


def led_by(store: ClusterStore, wanted: LeaderAndIsr) -> None:
    path, data = znodes.state_path(TP), znodes.encode_state(wanted)
    if store.store.exists(path) is None:
        store.store.create(path, data)
    else:
        store.store.set(path, data)


def test_it_returns_when_another_leads(store):
    store.register_broker(BrokerRegistration(2, ()))
    led_by(store, state(1, 1, 2))
    ended = []
    waiting = threading.Thread(
        target=lambda: ended.append(await_deposition(store, 1, [TP], FAR_S, threading.Event()))
    )
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    led_by(store, state(2, 2))
    waiting.join(20)
    assert ended == [True]


def test_it_does_not_wait_for_ever(store):
    store.register_broker(BrokerRegistration(2, ()))
    led_by(store, state(1, 1, 2))
    assert await_deposition(store, 1, [TP], 0.2, threading.Event()) is False


def test_it_waits_longer_while_the_dead_predecessors_registration_stands(store):
    store.register_broker(BrokerRegistration(1, ()))
    store.register_broker(BrokerRegistration(2, ()))
    led_by(store, state(1, 1, 2))
    began = time.monotonic()
    assert await_deposition(store, 1, [TP], 0.2, threading.Event()) is False
    assert time.monotonic() - began >= 0.6


def test_a_stop_ends_the_wait(store):
    store.register_broker(BrokerRegistration(2, ()))
    led_by(store, state(1, 1, 2))
    stopped = threading.Event()
    stopped.set()
    assert await_deposition(store, 1, [TP], FAR_S, stopped) is False


def test_it_does_not_wait_when_all_others_are_gone_too(store):
    led_by(store, state(1, 1, 2))
    assert await_deposition(store, 1, [TP], FAR_S, threading.Event())


def test_partitions_that_nobody_knows_any_more_keep_it_from_nothing(store):
    store.register_broker(BrokerRegistration(2, ()))
    assert await_deposition(store, 1, [TP, TopicPartition("gone", 4)], FAR_S, threading.Event())
