"""Who may speak as a broker: known addresses, on the right listener; the store and names are asked in between."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.network.request_channel import ConnectionInfo
from broker.server.broker_peers import BrokerPeers, Trust, addresses_of
from tests.support.logs import ManualClock

NAMES = {"k1.example": ["10.0.0.1"], "k2.example": ["10.0.0.2", "fd00::2"], "unknown.example": []}


class Cluster:
    """Registered hosts that can be read, or not; counts how often they were."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = list(hosts)
        self.reads = 0
        self.fails = False

    def __call__(self) -> list[str]:
        self.reads += 1
        if self.fails:
            raise ConnectionError("the store is away")
        return self.hosts


def peers(cluster, trust=Trust.REGISTERED, clock=None):
    return BrokerPeers(trust, "BROKER", cluster, clock or ManualClock(), lambda host: NAMES.get(host, [host]))


def connection(address, listener="CLIENT"):
    return ConnectionInfo("id", address, listener)


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.2", "fd00::2", "::ffff:10.0.0.1", "fd00::2%eth0"])
def test_an_address_of_a_registered_broker_is_admitted_and_known_from_then_on(address):
    found = peers(Cluster("k1.example", "k2.example"))
    assert not found.knows(connection(address))
    assert found.admits(connection(address), "FETCH")
    assert found.knows(connection(address))


@pytest.mark.parametrize("address", ["10.0.0.9", "fd00::9", "10.0.0.10", "no address", ""])
def test_any_other_is_refused_with_one_line(address):
    found = peers(Cluster("k1.example", "unknown.example"))
    with capture_logs() as lines:
        assert not found.admits(connection(address), "STOP_REPLICA")
    assert not found.knows(connection(address))
    told = [line for line in lines if line["event"] == "broker_request_refused"]
    assert all(line["api"] == "STOP_REPLICA" for line in told)
    assert len(told) <= 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.3.1", "::1", "::ffff:127.0.0.1"])
def test_this_host_is_admitted(address):
    assert peers(Cluster("k1.example")).admits(connection(address), "FETCH")


def test_who_was_refused_is_asked_for_again_after_a_second_and_no_earlier():
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    assert not found.admits(connection("10.0.0.2"), "FETCH")
    cluster.hosts.append("k2.example")
    clock.now_ms += 999
    assert not found.admits(connection("10.0.0.2"), "FETCH")
    assert cluster.reads == 1
    clock.now_ms += 1
    assert found.admits(connection("10.0.0.2"), "FETCH")
    assert cluster.reads == 2


def test_a_known_broker_costs_no_look_at_the_store():
    cluster = Cluster("k1.example")
    found = peers(cluster)
    for _ in range(5):
        assert found.admits(connection("10.0.0.1"), "FETCH")
    assert cluster.reads == 1


def test_a_broker_that_went_is_known_for_ten_minutes():
    clock, cluster = ManualClock(), Cluster("k1.example", "k2.example")
    found = peers(cluster, clock=clock)
    assert found.admits(connection("10.0.0.2"), "FETCH")
    cluster.hosts.remove("k2.example")
    clock.now_ms += 9 * 60_000
    assert not found.admits(connection("10.0.0.7"), "FETCH")
    assert found.knows(connection("10.0.0.2"))
    clock.now_ms += 60_001
    assert not found.admits(connection("10.0.0.8"), "FETCH")
    assert not found.knows(connection("10.0.0.2"))
    assert found.knows(connection("10.0.0.1"))


def test_a_store_that_is_away_leaves_those_who_are_known():
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    assert found.admits(connection("10.0.0.1"), "FETCH")
    cluster.fails = True
    clock.now_ms += 3_600_000
    assert not found.admits(connection("10.0.0.2"), "FETCH")
    assert found.admits(connection("10.0.0.1"), "FETCH")


def test_the_listener_counts_only_where_it_is_asked_for():
    cluster = Cluster("k1.example")
    assert peers(cluster).admits(connection("10.0.0.1", "CLIENT"), "FETCH")
    strict = peers(cluster, Trust.LISTENER)
    assert strict.admits(connection("10.0.0.1", "BROKER"), "FETCH")
    assert not strict.knows(connection("10.0.0.1", "CLIENT"))
    assert not strict.admits(connection("10.0.0.1", "CLIENT"), "FETCH")
    assert not strict.admits(connection("127.0.0.1", "CLIENT"), "FETCH")
    assert not strict.admits(connection("10.0.0.9", "BROKER"), "FETCH")


def test_any_is_anybody():
    assert peers(Cluster(), Trust.ANY).knows(connection("10.0.0.9"))


def test_names_are_resolved_and_what_has_no_address_is_told():
    assert "127.0.0.1" in addresses_of("127.0.0.1")
    with capture_logs() as lines:
        assert addresses_of("no such name.invalid") == []
    assert [line["host"] for line in lines] == ["no such name.invalid"]
