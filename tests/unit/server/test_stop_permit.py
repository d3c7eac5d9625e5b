"""The stop permit has one holder, who may die; a turn waits, says for what, and leaves the permit free."""

import json
import threading
import time
from datetime import UTC, datetime

import pytest

from broker.server.registration.session_file import SessionFile
from broker.server.stopping.asker import Asker, CannotAskError, why_given_up
from broker.server.stopping.may_stop import Turn
from broker.server.stopping.own_status import http_url
from broker.server.stopping.stop_judge import ClusterSnapshot, OwnBroker, PartitionView, RegisteredBroker
from broker.server.stopping.stop_permit import PERMIT, Held, Lease, StopPermit, decode_lease, encode_lease
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.session_end import Session
from broker.zookeeper.store import ConnectionLossError
from rig.wait import wait_until

MINUTE_MS = 60_000
ORDERS = TopicPartition("orders", 7)


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "metadata.db")
    store.connect(0, threading.Event())
    yield store
    store.close()


class Time:
    """Passes only while somebody rests; ``then`` happens at the n-th rest."""

    def __init__(self):
        self.now_s = 0.0
        self.rests = 0
        self.then = {}

    def now(self):
        return self.now_s

    def pause(self, seconds):
        self.rests += 1
        self.now_s += seconds
        self.then.get(self.rests, lambda: None)()


class Cluster:
    """What a turn reads, changed by the test."""

    def __init__(self):
        self.isr = (1, 2, 3)
        self.epochs = {1: 101, 2: 102, 3: 103}
        self.cluster_id = "c1"
        self.away = False

    def read(self, *_, others=True):
        if self.away:
            raise ConnectionLossError("/brokers/ids: SessionExpiredError")
        members = {
            n: RegisteredBroker(n, epoch, n, f"h{n}:9092", cluster_id="c1", controller_id=1)
            for n, epoch in self.epochs.items()
        }
        one = PartitionView(ORDERS, (1, 2, 3), self.isr, self.isr[0], 2)
        return ClusterSnapshot(self.cluster_id, 1, members, [one])


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def turn(store, cluster, clock):
    def make(holder="deploy-1", broker_id=3, told=None):
        asker = Asker(OwnBroker(broker_id, "c1", broker_id), "zk", 1)
        tell = [].append if told is None else told.append
        return Turn(
            store, asker, holder, MINUTE_MS, tell, now=clock.now, pause=clock.pause, read=cluster.read
        )

    return make


def lease(holder="deploy-1", broker_id=3, for_ms=MINUTE_MS):
    return Lease(holder, broker_id, for_ms)


# --- the lease


def test_one_has_the_permit_and_the_next_is_told_who(store):
    permit = StopPermit(store)
    assert permit.take(lease()) is None
    held = permit.take(lease("deploy-2", 1))
    assert isinstance(held, Held)
    assert "held by deploy-1 for broker 3" in str(held)
    assert permit.take(lease()) is None, "renewed"
    permit.free("deploy-2", 1)
    assert permit.take(lease("deploy-2", 1)) is not None, "nobody frees what is another's"
    permit.free("deploy-1", 3)
    assert permit.take(lease("deploy-2", 1)) is None


def test_it_is_told_since_when_the_permit_is_held_which_renewals_keep(store):
    permit = StopPermit(store)
    assert permit.held() is None
    assert permit.take(lease()) is None
    first = permit.held()
    assert first.lease.since_ms > 0
    assert (
        f"for broker 3 since {datetime.fromtimestamp(first.lease.since_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z: it waits"
        in str(first)
    )
    stamped = store.get(PERMIT)[1].mtime_ms
    wait_until(lambda: permit.take(lease()) is None and store.get(PERMIT)[1].mtime_ms > stamped)
    assert permit.held().lease.since_ms == first.lease.since_ms
    told = json.loads(permit.held().to_json())
    assert (told["holder"], told["broker"], told["since_ms"]) == ("deploy-1", 3, first.lease.since_ms)
    assert 0 < told["remaining_ms"] <= MINUTE_MS
    permit.free("deploy-1", 3)
    assert permit.held() is None


def test_a_permit_of_a_release_that_noted_no_beginning_and_one_of_no_year_are_told_without_it(store):
    permit = StopPermit(store)
    assert permit.take(lease()) is None
    told = json.loads(store.get(PERMIT)[0])
    for since in ({}, {"since_ms": 2**62}):
        store.set(
            PERMIT, json.dumps({**{k: v for k, v in told.items() if k != "since_ms"}, **since}).encode()
        )
        assert "held by deploy-1 for broker 3: it waits" in str(permit.take(lease("deploy-2", 1)))


def test_the_same_holder_stops_its_next_broker_when_the_last_one_is_back(store):
    permit = StopPermit(store)
    assert permit.take(lease(broker_id=3)) is None
    assert permit.take(lease(broker_id=2)) is not None


def test_a_permit_whose_holder_died_is_free_when_its_time_has_passed(store):
    permit = StopPermit(store)
    assert permit.take(lease(for_ms=50)) is None
    deadline = time.monotonic() + 10
    while permit.take(lease("deploy-2", 1)) is not None:
        assert time.monotonic() < deadline
    assert permit.held_by("deploy-1", 3) is None


def test_many_who_ask_at_once_get_one_permit(store):
    granted = []

    def ask(n):
        if StopPermit(store).take(lease(f"deploy-{n}", n)) is None:
            granted.append(n)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 1


def test_a_lease_survives_its_writing_and_rubbish_is_a_free_permit(store):
    whole = Lease("me", 3, 5, 103, {"orders": (7, 8)})
    assert decode_lease(encode_lease(whole)) == whole
    assert whole.was_out_of(ORDERS)
    permit = StopPermit(store)
    permit.take(lease())
    store.set(PERMIT, b'{"holder": 1}')
    assert permit.take(lease("deploy-2", 1)) is None
    text = encode_lease(whole)
    for rubbish in (b"[" * 100_000, text.replace(b"me", b"\\ud800"), text.replace(b"103", b"1" * 20)):
        assert decode_lease(rubbish) is None


# --- a turn


def test_the_permit_is_granted_at_once_when_the_cluster_bears_it(turn, clock):
    assert turn().ask(0) == []
    assert clock.rests == 0
    assert "held by deploy-1" in turn("deploy-2", 1).ask(0)[0]


def test_a_refused_turn_leaves_the_permit_free(turn, cluster):
    cluster.isr = (1, 3)
    (reason,) = turn().ask(0)
    assert reason.startswith("orders-7 would have 1 in sync without broker 3")
    cluster.isr = (1, 2, 3)
    assert turn("deploy-2", 1).ask(0) == []


def test_it_waits_says_for_what_once_and_goes_on_when_it_is_there(turn, cluster, clock):
    cluster.isr = (1, 3)
    clock.then[5] = lambda: setattr(cluster, "isr", (1, 2, 3))
    told = []
    assert turn(told=told).ask(60) == []
    assert len(told) == 1
    assert "replica 2 (out of sync)" in told[0]


def test_who_waits_for_the_cluster_keeps_nobody_else_from_a_turn(turn, cluster, clock):
    cluster.isr = (1, 3)
    del cluster.epochs[2]
    mended = []
    clock.then[2] = lambda: mended.append(turn("deploy-2", 2).ask(0))
    assert turn().ask(30) != []
    assert mended == [[]]


def test_the_deadline_is_in_seconds(turn, cluster, clock):
    cluster.isr = (1, 3)
    assert turn().ask(30) != []
    assert 30 <= clock.now_s < 33


def test_a_zookeeper_that_is_away_for_an_election_is_waited_for(turn, cluster, clock):
    cluster.away = True
    clock.then[5] = lambda: setattr(cluster, "away", False)
    told = []
    assert turn(told=told).ask(60) == []
    assert told == ["waiting: ZooKeeper: /brokers/ids: SessionExpiredError"]


def test_a_zookeeper_that_stays_away_ends_the_turn_long_before_the_deadline(turn, cluster, clock):
    cluster.away = True
    with pytest.raises(ConnectionLossError):
        turn().ask(600)
    assert 12 <= clock.now_s < 20


def test_another_cluster_is_refused_at_once_and_nothing_is_held(turn, cluster):
    cluster.cluster_id = "c2"
    with pytest.raises(CannotAskError, match="leads to cluster c2"):
        turn().ask(60)
    cluster.cluster_id = "c1"
    assert turn("deploy-2", 1).ask(0) == []


def test_a_dry_run_takes_nothing(turn):
    assert turn().why_not_now() == []
    assert turn("deploy-2", 1).ask(0) == []


def test_a_dry_run_says_who_has_the_permit(turn, cluster):
    assert turn("deploy-1", 1).ask(0) == []
    cluster.isr = (1, 3)
    held, state = turn("deploy-2").why_not_now()
    assert "held by deploy-1 for broker 1" in held
    assert state.startswith("orders-7 would have 1 in sync")
    cluster.isr = (1, 2, 3)
    assert turn("deploy-1", 1).why_not_now() == []


def test_the_permit_is_kept_until_the_broker_is_back_in_the_isr_that_it_was_in(turn, cluster, clock):
    assert turn().ask(0) == []
    cluster.isr, cluster.epochs = (1, 2), {1: 101, 2: 102}
    others = []
    clock.then[1] = lambda: others.append(turn("deploy-2", 1).ask(0))
    clock.then[2] = lambda: setattr(cluster, "epochs", {1: 101, 2: 102, 3: 203})
    clock.then[4] = lambda: setattr(cluster, "isr", (1, 2, 3))
    told = []
    assert turn(told=told).await_return(60) == []
    assert "held by deploy-1 for broker 3" in others[0][0]
    assert told == [
        "waiting: broker 3 has not registered anew in ZooKeeper yet",
        "waiting: orders-7 has broker 3 not back in its ISR [1, 2], leader 1",
    ]
    assert turn("deploy-2", 1).ask(0) == []


def test_an_isr_that_the_broker_was_not_in_is_not_waited_for(turn, cluster):
    cluster.isr = (1, 2)
    assert turn().ask(0) == []
    cluster.epochs = {1: 101, 2: 102, 3: 203}
    assert turn().await_return(0) == []


def test_a_recovery_that_goes_on_is_waited_for_and_one_that_repeats_itself_is_not(turn, cluster, clock):
    """A crash loop verifies the same segments again and again: that is no progress."""
    assert turn().ask(0) == []
    cluster.epochs = {1: 101, 2: 102}
    (reason,) = turn().await_return(10, progress=lambda: min(clock.rests, 100))
    assert "has not registered" in reason
    assert 110 <= clock.now_s < 115
    assert turn().ask(0) == []
    began = clock.now_s
    assert turn().await_return(10, progress=lambda: clock.rests % 5) != []
    assert clock.now_s - began < 20


def test_what_systemd_gave_up_on_is_not_waited_for(store, turn, cluster, clock):
    assert turn().ask(0) == []
    cluster.epochs = {1: 101, 2: 102}
    reasons = turn().await_return(600, given_up=lambda: "systemd gave up on landline-broker@3.service")
    assert reasons[0] == "systemd gave up on landline-broker@3.service"
    assert clock.rests == 0
    assert StopPermit(store).take(lease("deploy-2", 1)) is None, "what may stop now, the cluster's state says"


def test_a_crash_loop_is_not_waited_for():
    assert why_given_up("u", {"ActiveState": "activating", "NRestarts": "4"}) is None
    assert why_given_up("u", {"ActiveState": "failed", "NRestarts": "0"}) == "systemd gave up on u"
    assert "u ended 5 times" in why_given_up("u", {"ActiveState": "activating", "NRestarts": "5"})


# --- what the host says


def test_a_broker_is_described_by_its_properties_and_its_data(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=c1\n")
    properties = {
        "zookeeper.connect": "zk:2181",
        "log.dirs": str(tmp_path),
        "landline.http.port": "8092",
        "min.insync.replicas": "2",
    }
    asker = Asker.of(properties, "broker-3.properties")
    assert asker == Asker(OwnBroker(3, "c1", None), "zk:2181", 2, tmp_path, "PLAINTEXT")
    assert http_url(properties) == "http://127.0.0.1:8092"
    session = Session("zk", 77, bytes(16))
    SessionFile(tmp_path).write(session)
    assert asker.own_now().session_id == 77, (
        "of the process that runs now, not of the one that ran when it was asked"
    )
    with pytest.raises(CannotAskError, match=r"broker-3\.properties has no zookeeper\.connect"):
        Asker.of({}, "broker-3.properties")
    with pytest.raises(CannotAskError, match=r"no broker\.id"):
        Asker.of({"zookeeper.connect": "zk", "log.dirs": str(tmp_path / "none")}, "x")
