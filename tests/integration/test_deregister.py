"""A crashed broker is failed over when its unit's ``ExecStopPost=`` has run, not when its session times out."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.registration.session_file import SessionFile
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.session_end import SessionEnd, end_session
from rig.brokers import BrokerProcess, Cluster
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.ack_meter import AckMeter
from tests.support.peers import CLUSTER_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "kept"
# As long as the tests' ZooKeeper allows: whatever happens within it was not the time-out's doing.
SESSION_MS = 60_000
CONFIG = {**CLUSTER_CONFIG, "zookeeper.session.timeout.ms": SESSION_MS, "min.insync.replicas": 2}
# Typically half a second; a busy machine takes longer, a session time-out far longer.
FAILOVER_S = 15.0
DEREGISTER_S = 20.0


def deregister(broker: BrokerProcess) -> str:
    """What the unit runs; the line it logs."""
    properties = broker.log_dir.with_name(broker.log_dir.name + ".properties")
    done = subprocess.run(
        [*COMMAND, "deregister", str(properties)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=DEREGISTER_S,
        check=True,
    )
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def sessions(zookeeper: ZooKeeperServer) -> Iterator[object]:
    opened: list[ZooKeeperStore] = []
    connect = zookeeper.chroot()

    def open_session() -> ClusterStore:
        store = ZooKeeperStore(connect, SESSION_MS)
        store.connect(60_000, threading.Event())
        opened.append(store)
        return ClusterStore(store)

    yield open_session
    for store in opened:
        store.close()


def make_broker(broker_id: int, zk_connect: str, root: Path) -> LandlineBroker:
    return LandlineBroker(broker_id, zk_connect, root / f"broker-{broker_id}", dict(CONFIG))


# --- the session


def test_all_of_a_sessions_nodes_go_at_once_and_no_others(sessions) -> None:
    dead, other = sessions(), sessions()
    for store, name in ((dead, "a"), (dead, "b"), (other, "c")):
        store.store.create(f"/{name}", ephemeral=True)
    session = dead.store.session
    assert end_session(session, 60.0) is SessionEnd.ENDED
    assert [other.store.exists(f"/{name}") is not None for name in "abc"] == [False, False, True]
    assert end_session(session._replace(session_id=12345), 60.0) is SessionEnd.GONE


def test_nobody_ends_a_session_without_its_password(sessions) -> None:
    alive = sessions()
    alive.store.create("/a", ephemeral=True)
    assert end_session(alive.store.session._replace(password=bytes(16)), 60.0) is SessionEnd.GONE
    assert alive.store.exists("/a").ephemeral_owner == alive.session_id


# --- brokers


def test_a_killed_leader_and_controller_is_failed_over_as_soon_as_it_is_deregistered(
    zookeeper: ZooKeeperServer, tmp_path: Path, capsys
) -> None:
    zk_connect = zookeeper.chroot()
    with Cluster({n: make_broker(n, zk_connect, tmp_path) for n in (1, 2, 3)}, zk_connect) as cluster:
        victim = cluster.controller()
        create_topic(cluster.bootstrap, TOPIC, 3, 3)
        store = ZooKeeperStore(zk_connect, SESSION_MS)
        store.connect(60_000, threading.Event())
        observer = ClusterStore(store)
        try:
            states = observer.partition_states([TopicPartition(TOPIC, number) for number in range(3)])
            partition = next(tp.partition for tp, state in states.items() if state.leader == victim.broker_id)
            with AckMeter(cluster.bootstrap, TOPIC, partition) as meter:
                meter.await_acks(100)
                victim.kill()
                line = deregister(victim)
                assert "dead_broker_deregistered" in line
                assert observer.broker(victim.broker_id) is None
                meter.await_acks(100)
                gap_s = meter.longest_gap_s()
            with capsys.disabled():
                print(
                    f"\nleader and controller killed: {gap_s:.2f} s without an ack ({line.rpartition(' ')[2]})"
                )
            assert gap_s < FAILOVER_S
            victim.start()
            wait_until(cluster.is_complete, timeout=60)
        finally:
            store.close()


def test_a_broker_that_lives_is_left_alone_frozen_or_not(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with make_broker(1, zookeeper.chroot(), tmp_path) as broker:
        noted = SessionFile(broker.log_dir).read()
        assert noted is not None
        for frozen in (False, True):
            if frozen:
                broker.freeze()
            line = deregister(broker)
            assert "broker_not_deregistered" in line
            assert f"its process {broker.process.pid} runs" in line
        broker.thaw()
        assert broker.view().controller_id == 1
        assert end_session(noted.session, 60.0) is SessionEnd.ENDED, "it was alive until now"


def test_a_session_lasts_as_long_as_the_config_says(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with make_broker(1, zookeeper.chroot(), tmp_path) as broker:
        noted = SessionFile(broker.log_dir).read()
        assert noted is not None
        (line,) = [
            line
            for line in zookeeper.four_letter_word("cons").splitlines()
            if f"sid={noted.session}," in line
        ]
        assert f"to={SESSION_MS}," in line


def test_after_a_clean_stop_there_is_nothing_to_do(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with make_broker(1, zookeeper.chroot(), tmp_path) as broker:
        assert broker.stop() == 0
        assert "nothing_to_deregister" in deregister(broker)


def test_the_next_process_of_a_killed_broker_is_left_alone(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with make_broker(1, zookeeper.chroot(), tmp_path) as broker:
        dead = SessionFile(broker.log_dir).read()
        broker.kill()
        broker.start()
        assert "broker_not_deregistered" in deregister(broker)
        assert dead is not None
        assert end_session(dead.session, 60.0) is SessionEnd.GONE, "its successor has ended it"
        assert "predecessors_session_ended" in broker.log_text()
        assert broker.view().controller_id == 1


def test_with_a_frozen_zookeeper_it_gives_up_soon_and_does_not_fail(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with make_broker(1, own_zookeeper.chroot(), tmp_path) as broker:
        broker.kill()
        own_zookeeper.process.freeze()
        began = time.monotonic()
        assert "zookeeper.session.timeout.ms" in deregister(broker)
        assert time.monotonic() - began < DEREGISTER_S
    assert SessionFile(broker.log_dir).read() is not None, "its successor may still do it"
