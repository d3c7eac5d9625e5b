"""The healthcheck registers the broker, again after every expired session, and never over a broker
that lives.
"""

from __future__ import annotations

import threading

import pytest

from broker.config.endpoint import Endpoint
from broker.server.registration.healthcheck import BrokerIdInUseError, Healthcheck
from broker.server.registration.session_file import SessionFile
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.session_end import SessionEnd, end_session
from broker.zookeeper.store import Cancelled, Create
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
ENDPOINTS = [Endpoint("h", 9092, "PLAINTEXT")]


@pytest.fixture
def connect(zookeeper):
    return zookeeper.chroot()


@pytest.fixture
def sessions(connect):
    opened = []

    def open_session(session_timeout_ms=6000):
        store = ZooKeeperStore(connect, session_timeout_ms)
        store.connect(60_000, threading.Event())
        opened.append(store)
        cluster = ClusterStore(store)
        cluster.create_top_level_paths()
        return cluster

    yield open_session
    for store in opened:
        store.close()


def healthcheck(cluster, epochs, **changes):
    arguments = {"on_registered": epochs.append, "session_timeout_ms": 6000, **changes}
    return Healthcheck(cluster, 1, ENDPOINTS, "r1", **arguments)


def test_the_broker_is_registered_with_its_epoch_and_taken_back(sessions):
    cluster, other, epochs = sessions(), sessions(), []
    check = healthcheck(cluster, epochs)
    check.startup()
    live = other.broker(1)
    assert epochs == [live.epoch]
    assert live.registration.endpoints == tuple(ENDPOINTS)
    assert (live.registration.rack, live.session_id) == ("r1", cluster.session_id)
    check.shutdown()
    assert other.broker(1) is None


def test_after_an_expired_session_the_broker_registers_anew(sessions):
    cluster, other, epochs = sessions(), sessions(), []
    check = healthcheck(cluster, epochs)
    check.startup()
    for times in (2, 3):
        assert end_session(cluster.store.session, 30) is SessionEnd.ENDED
        wait_until(lambda wanted=times: len(epochs) == wanted, 60)
        assert other.broker(1).epoch == epochs[-1]
    assert epochs == sorted(set(epochs))
    check.shutdown()


def test_a_dead_brokers_registration_is_waited_for(sessions):
    old, new, epochs = sessions(), sessions(), []
    healthcheck(old, []).startup()
    waiting = threading.Thread(target=healthcheck(new, epochs, session_timeout_ms=60_000).startup)
    waiting.start()
    wait_until(waiting.is_alive)
    assert epochs == []
    old.store.close()
    wait_until(lambda: epochs, 30)
    waiting.join()
    assert new.broker(1).session_id == new.session_id


def test_a_live_broker_with_the_same_id_is_named(sessions):
    first, second, epochs = sessions(), sessions(), []
    healthcheck(first, []).startup()
    check = healthcheck(second, epochs, session_timeout_ms=-1900)  # of the grace a little is left
    with pytest.raises(BrokerIdInUseError, match=r"broker id 1 .* PLAINTEXT://h:9092 .*another broker\.id"):
        check.startup()
    assert epochs == []
    check.shutdown()
    assert first.broker(1).session_id == first.session_id, "the other broker's node is left alone"


def test_waiting_ends_when_the_broker_is_told_to_stop(sessions):
    first, second = sessions(), sessions()
    healthcheck(first, []).startup()
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        healthcheck(second, [], cancel=cancel).startup()


def test_a_node_of_our_own_earlier_session_is_replaced(sessions):
    cluster, epochs = sessions(), []
    ghost = sessions()
    check = healthcheck(cluster, epochs)
    check._own_sessions.add(ghost.session_id)
    ghost.store.multi([Create("/brokers/ids/1", b'{"endpoints":[]}', ephemeral=True)])
    check.startup()
    assert cluster.broker(1).session_id == cluster.session_id
    assert len(epochs) == 1
    check.shutdown()


def test_a_standalone_broker_registers_too(tmp_path):
    epochs = []
    for _ in range(2):
        store = EmbeddedStore(tmp_path / "metadata.db")
        store.connect()
        cluster = ClusterStore(store)
        cluster.create_top_level_paths()
        check = healthcheck(cluster, epochs)
        check.startup()
        check.shutdown()
        store.close()
    assert epochs == sorted(set(epochs))


def test_the_session_is_noted_before_it_registers(sessions, tmp_path):
    cluster, note, seen = sessions(), SessionFile(tmp_path), []

    def on_registered(_epoch):
        seen.append(note.read().session)

    check = healthcheck(cluster, [], session_file=note, on_registered=on_registered)
    check.startup()
    assert seen == [cluster.store.session]
    assert seen[0].session_id == cluster.broker(1).session_id
    check.shutdown()
