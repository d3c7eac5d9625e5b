"""Who may speak as a broker: known addresses, on the right listener; the store and names are asked in between."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.network.request_channel import ConnectionInfo
from broker.server.broker_peers import BrokerPeers, Speaker, Standing, Trust, addresses_of
from tests.support.clocks import ManualClock

NAMES = {"k1.example": ["10.0.0.1"], "k2.example": ["10.0.0.2", "fd00::2"], "unknown.example": []}


class Cluster:
    """Registered hosts that can be read, or not, and by which listener they say that they speak; counts how
    often they were read, and names looked up.
    """

    def __init__(self, *hosts: str, speak_by: str | None = None) -> None:
        self.hosts = dict.fromkeys(hosts, speak_by)
        self.reads = 0
        self.names: list[str] = []
        self.fails = False

    def __call__(self) -> list[Speaker]:
        self.reads += 1
        if self.fails:
            raise ConnectionError("the store is away")
        return [Speaker(frozenset({host}), listener) for host, listener in self.hosts.items()]

    def resolve(self, host: str) -> list[str]:
        self.names.append(host)
        return NAMES.get(host, [host])


class Pauses:
    """Waits by moving the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.taken: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.clock.now_ms += round(seconds * 1000)


def peers(cluster, trust=Trust.REGISTERED, clock=None, **more):
    clock = clock or ManualClock()
    return BrokerPeers(trust, "BROKER", cluster, clock, resolve=cluster.resolve, pause=Pauses(clock), **more)


def connection(address, listener="CLIENT"):
    return ConnectionInfo("id", address, listener)


def look_up(found, address, listener="CLIENT", came_ms=1 << 60):
    """By default it came after whatever was read."""
    return found.look_up(connection(address, listener), came_ms)


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.2", "fd00::2", "::ffff:10.0.0.1", "fd00::2%eth0"])
def test_an_address_of_a_registered_broker_is_found_and_known_from_then_on(address):
    found = peers(Cluster("k1.example", "k2.example"))
    assert found.standing(connection(address)) is Standing.UNKNOWN
    assert look_up(found, address) is Standing.BROKER
    assert found.knows(connection(address))


def test_once_read_all_brokers_are_known_without_being_looked_up():
    cluster = Cluster("k1.example", "k2.example")
    found = peers(cluster)
    found.refresh()
    assert all(found.knows(connection(address)) for address in ("10.0.0.1", "10.0.0.2", "fd00::2"))
    assert look_up(found, "10.0.0.2") is Standing.BROKER
    assert cluster.reads == 1


@pytest.mark.parametrize("address", ["10.0.0.9", "fd00::9", "10.0.0.10", "no address", ""])
def test_any_other_is_refused_with_one_line(address):
    found = peers(Cluster("k1.example", "unknown.example"))
    assert look_up(found, address) is Standing.REFUSED
    assert found.standing(connection(address)) is Standing.REFUSED
    with capture_logs() as lines:
        for _ in range(3):
            found.tell_refused(connection(address), "STOP_REPLICA")
    told = [line for line in lines if line["event"] == "broker_request_refused"]
    assert all(line["api"] == "STOP_REPLICA" for line in told)
    assert len(told) <= 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.3.1", "::1", "::ffff:127.0.0.1"])
def test_this_host_is_known_and_never_looked_up(address):
    cluster = Cluster("k1.example")
    assert peers(cluster).knows(connection(address))
    assert cluster.reads == 0


def test_a_registered_broker_stays_known_while_no_name_server_knows_its_name(monkeypatch):
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    found.refresh()
    monkeypatch.setitem(NAMES, "k1.example", [])
    for number in range(100, 112):
        clock.now_ms += 60_000
        assert look_up(found, f"10.0.0.{number}") is Standing.REFUSED
    assert found.knows(connection("10.0.0.1"))
    del cluster.hosts["k1.example"]
    for number in range(100, 112):
        clock.now_ms += 60_000
        assert look_up(found, f"10.0.0.{number}") is Standing.REFUSED
    assert not found.knows(connection("10.0.0.1"))


def test_who_was_refused_is_asked_for_again_after_a_second_and_no_earlier():
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    assert look_up(found, "10.0.0.2") is Standing.REFUSED
    cluster.hosts["k2.example"] = None
    clock.now_ms += 999
    assert look_up(found, "10.0.0.2") is Standing.REFUSED
    assert cluster.reads == 1
    clock.now_ms += 1
    assert look_up(found, "10.0.0.2") is Standing.BROKER
    assert cluster.reads == 2


def test_a_broker_that_has_just_registered_is_found_though_others_were_refused_just_now():
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    for number in range(100, 120):
        assert look_up(found, f"10.0.0.{number}") is Standing.REFUSED
    cluster.hosts["k2.example"] = None
    assert look_up(found, "10.0.0.2") is Standing.BROKER


def test_one_reading_serves_all_who_came_before_it():
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    came_ms = clock.now_ms
    clock.now_ms += 1
    assert look_up(found, "10.0.0.7", came_ms=came_ms) is Standing.REFUSED
    assert look_up(found, "10.0.0.8", came_ms=came_ms) is Standing.REFUSED
    assert look_up(found, "10.0.0.1", came_ms=came_ms) is Standing.BROKER
    assert cluster.reads == 1
    assert look_up(found, "10.0.0.9", came_ms=clock.now_ms) is Standing.REFUSED
    assert cluster.reads == 2


def test_strangers_have_the_store_read_ten_times_a_second_and_names_asked_for_once():
    clock, cluster = ManualClock(), Cluster("k1.example", "k2.example")
    found = peers(cluster, clock=clock)
    began_ms = clock.now_ms
    for number in range(250):
        assert look_up(found, f"10.1.0.{number}") is Standing.REFUSED
    assert clock.now_ms - began_ms >= 249 * 100
    assert cluster.reads == 250
    assert len(cluster.names) <= 2 * (1 + (clock.now_ms - began_ms) // 1000)


def test_the_addresses_of_one_network_of_ipv6_are_looked_up_eight_at_a_time():
    cluster = Cluster("k1.example")
    found = peers(cluster)
    clock_stands = 1 << 60
    found._pause = lambda _seconds: None  # all within one second
    outcomes = [look_up(found, f"2001:db8::{number:x}", came_ms=clock_stands) for number in range(1, 30)]
    assert outcomes == [Standing.REFUSED] * 8 + [Standing.CROWDED] * 21
    assert cluster.reads == 8
    assert look_up(found, "2001:db8:0:1::1") is Standing.REFUSED
    assert found.standing(connection("2001:db8::1")) is Standing.REFUSED


def test_what_is_kept_of_who_was_refused_is_bounded_and_the_newest_stay():
    found = peers(Cluster("k1.example"))
    found._pause = lambda _seconds: None
    for number in range(3_000):
        look_up(found, f"10.{number // 250}.1.{number % 250}")
    assert len(found._refused) == 1_000
    assert found.standing(connection("10.11.1.249")) is Standing.REFUSED
    assert found.standing(connection("10.0.1.0")) is Standing.UNKNOWN


def test_a_known_broker_costs_no_look_at_the_store():
    cluster = Cluster("k1.example")
    found = peers(cluster)
    for _ in range(5):
        assert look_up(found, "10.0.0.1") is Standing.BROKER
    assert cluster.reads == 1


def test_a_broker_that_went_is_known_for_ten_minutes():
    clock, cluster = ManualClock(), Cluster("k1.example", "k2.example")
    found = peers(cluster, clock=clock)
    assert look_up(found, "10.0.0.2") is Standing.BROKER
    del cluster.hosts["k2.example"]
    clock.now_ms += 9 * 60_000
    assert look_up(found, "10.0.0.7") is Standing.REFUSED
    assert found.knows(connection("10.0.0.2"))
    clock.now_ms += 60_001
    assert look_up(found, "10.0.0.8") is Standing.REFUSED
    assert not found.knows(connection("10.0.0.2"))
    assert found.knows(connection("10.0.0.1"))


def test_a_store_that_is_away_leaves_those_who_are_known_and_refuses_nobody():
    clock, cluster = ManualClock(), Cluster("k1.example")
    found = peers(cluster, clock=clock)
    assert look_up(found, "10.0.0.1") is Standing.BROKER
    cluster.fails = True
    clock.now_ms += 3_600_000
    assert look_up(found, "10.0.0.2") is Standing.UNKNOWN
    assert look_up(found, "10.0.0.1") is Standing.BROKER
    cluster.fails = False
    cluster.hosts["k2.example"] = None
    assert look_up(found, "10.0.0.2") is Standing.BROKER


def test_a_broker_that_stops_looks_nobody_up():
    cluster = Cluster("k1.example")
    found = peers(cluster)
    found.close()
    found.refresh()
    assert look_up(found, "10.0.0.1") is Standing.UNKNOWN
    assert cluster.reads == 0


def test_strict_trust_hears_the_listener_between_brokers_only():
    cluster = Cluster("k1.example")
    strict = peers(cluster, Trust.LISTENER)
    assert look_up(strict, "10.0.0.1", "BROKER") is Standing.BROKER
    assert not strict.knows(connection("10.0.0.1", "CLIENT"))
    assert look_up(strict, "10.0.0.1", "CLIENT") is Standing.REFUSED
    assert look_up(strict, "127.0.0.1", "CLIENT") is Standing.REFUSED
    assert look_up(strict, "10.0.0.9", "BROKER") is Standing.REFUSED
    assert cluster.reads == 2


def test_the_listener_for_the_controllers_requests_is_heard_as_the_one_between_brokers():
    found = peers(Cluster("10.0.0.1"), Trust.LISTENER, controller_listener="CONTROLLER")
    for listener in ("BROKER", "CONTROLLER"):
        assert look_up(found, "10.0.0.1", listener) is Standing.BROKER
    assert look_up(found, "10.0.0.1", "CLIENT") is Standing.REFUSED


def test_when_all_brokers_say_that_they_speak_by_one_listener_no_other_is_heard():
    found = peers(Cluster("k1.example", "k2.example", speak_by="BROKER"))
    found.refresh()
    assert found.knows(connection("10.0.0.1", "BROKER"))
    assert found.knows(connection("127.0.0.1", "BROKER"))
    for address in ("10.0.0.1", "10.0.0.2", "127.0.0.1"):
        assert look_up(found, address, "CLIENT") is Standing.REFUSED


@pytest.mark.parametrize(
    "speaks_by", [None, "CLIENT"], ids=["Kafka's broker or an older one", "one not over yet"]
)
def test_as_long_as_one_broker_may_speak_by_the_listener_of_clients_both_are_heard(speaks_by):
    """The roll from one listener to two: brokers go over one by one, and the others still speak to them by the old."""
    clock, cluster = ManualClock(), Cluster("k1.example", speak_by="BROKER")
    cluster.hosts["k2.example"] = speaks_by
    found = peers(cluster, clock=clock)
    found.refresh()
    assert found.knows(connection("10.0.0.2", "CLIENT"))
    assert found.knows(connection("10.0.0.1", "BROKER"))
    cluster.hosts["k2.example"] = "BROKER"
    found.refresh()
    assert not found.knows(connection("10.0.0.2", "CLIENT"))


def test_a_broker_that_goes_back_to_the_listener_of_clients_is_found_by_its_first_request():
    clock, cluster = ManualClock(), Cluster("k1.example", "k2.example", speak_by="BROKER")
    found = peers(cluster, clock=clock)
    found.refresh()
    cluster.hosts["k2.example"] = "CLIENT"
    assert look_up(found, "10.0.0.2", "CLIENT") is Standing.BROKER


def test_a_broker_that_is_refused_by_one_listener_is_looked_up_by_the_other():
    cluster = Cluster("k1.example", speak_by="BROKER")
    found = peers(cluster)
    assert look_up(found, "10.0.0.2", "CLIENT") is Standing.REFUSED
    cluster.hosts["k2.example"] = "BROKER"
    assert look_up(found, "10.0.0.2", "BROKER") is Standing.BROKER


def test_no_broker_at_all_says_nothing_of_listeners():
    found = peers(Cluster())
    found.refresh()
    assert found.knows(connection("127.0.0.1", "CLIENT"))


def test_any_is_anybody_and_nothing_is_read():
    cluster = Cluster()
    found = peers(cluster, Trust.ANY)
    found.refresh()
    assert found.knows(connection("10.0.0.9"))
    assert cluster.reads == 0


def test_names_are_resolved_and_what_has_no_address_is_told():
    assert "127.0.0.1" in addresses_of("127.0.0.1")
    with capture_logs() as lines:
        assert addresses_of("no such name.invalid") == []
    assert [line["host"] for line in lines] == ["no such name.invalid"]
