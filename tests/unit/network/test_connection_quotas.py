"""How many connections, and how many new ones a second."""

from __future__ import annotations

import pytest

from broker.network.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    ListenerLimits,
    TooManyConnectionsError,
)
from tests.support.clocks import ManualTime


def accepted(
    quotas: ConnectionQuotas, clock: ManualTime[float], seconds: float, listener: str = "CLIENT"
) -> int:
    """How many an acceptor takes in this time that always has somebody waiting."""
    count, end_s = 0, clock.now + seconds
    while clock.now < end_s:
        pause_s = quotas.pause_s(listener)
        if pause_s > 0:
            clock.now += pause_s + 1e-6
        else:
            count += 1
            clock.now += 1e-6
    return count


def test_new_connections_come_at_the_rate_and_no_faster() -> None:
    clock = ManualTime(100.0)
    quotas = ConnectionQuotas(100, 100, {}, 10, clock_s=clock)
    assert 99 <= accepted(quotas, clock, 10) <= 102


def test_a_quiet_second_allows_a_seconds_worth_at_once() -> None:
    clock = ManualTime(100.0)
    quotas = ConnectionQuotas(100, 100, {}, 10, clock_s=clock)
    clock.now += 60
    assert [quotas.pause_s("CLIENT") for _ in range(10)] == [0.0] * 10
    assert quotas.pause_s("CLIENT") == pytest.approx(0.1)


def test_no_rate_and_the_brokers_own_listener_never_wait() -> None:
    clock = ManualTime(100.0)
    assert ConnectionQuotas(100, 100, {}, clock_s=clock).pause_s("CLIENT") == 0
    quotas = ConnectionQuotas(100, 100, {}, 0, protected_listeners={"BROKER"}, clock_s=clock)
    assert quotas.pause_s("CLIENT") == 0  # the one that is always allowed
    assert quotas.pause_s("CLIENT") == 1
    assert quotas.pause_s("BROKER") == 0


def test_limits_change_while_connections_are_there() -> None:
    quotas = ConnectionQuotas(2, 2, {})
    quotas.add("a", "CLIENT")
    quotas.add("a", "CLIENT")
    with pytest.raises(TooManyConnectionsError, match=r"per\.ip=2"):
        quotas.add("a", "CLIENT")
    quotas.limits = ConnectionLimits(3, 3)
    quotas.add("a", "CLIENT")
    quotas.limits = ConnectionLimits(3, 4, {"b": 0})
    assert quotas.why_full("CLIENT") == "max.connections=3"
    with pytest.raises(TooManyConnectionsError, match=r"per\.ip=0"):
        quotas.add("b", "CLIENT")
    for _ in range(3):
        quotas.remove("a", "CLIENT")
    assert quotas.total == 0


def test_brokers_are_let_in_beyond_the_limit_and_the_others_give_way() -> None:
    quotas = ConnectionQuotas(1, 100, {}, protected_listeners={"BROKER"})
    quotas.add("client", "CLIENT")
    assert quotas.why_full("CLIENT")
    assert not quotas.why_full("BROKER")
    assert quotas.excess == 0
    quotas.add("broker", "BROKER")
    assert quotas.excess == 1


def test_nobody_gives_way_where_brokers_have_no_listener_of_their_own() -> None:
    quotas = ConnectionQuotas(0, 100, {})
    quotas.add("client or broker", "CLIENT")
    assert quotas.why_full("PLAINTEXT")
    assert quotas.excess == 0


def test_a_listener_may_have_limits_of_its_own() -> None:
    quotas = ConnectionQuotas(3, 100, {}, protected_listeners={"BROKER"})
    own = {"CLIENT": ListenerLimits(1), "BROKER": ListenerLimits(2)}
    quotas.limits = ConnectionLimits(3, 100, listeners=own)
    quotas.add("a", "CLIENT")
    assert quotas.why_full("CLIENT") == "listener.name.client.max.connections=1"
    assert not quotas.why_full("OTHER")
    quotas.add("a", "BROKER")
    assert not quotas.why_full("BROKER")
    quotas.add("a", "BROKER")
    assert quotas.why_full("BROKER") == "listener.name.broker.max.connections=2"
    assert quotas.why_full("OTHER") == "max.connections=3"
    quotas.remove("a", "BROKER")
    assert not quotas.why_full("BROKER")


def test_a_listener_may_have_a_rate_of_its_own_below_the_brokers() -> None:
    clock = ManualTime(100.0)
    quotas = ConnectionQuotas(100, 100, {}, protected_listeners={"BROKER"}, clock_s=clock)
    own = {"CLIENT": ListenerLimits(creation_rate=10), "BROKER": ListenerLimits(creation_rate=5)}
    quotas.limits = ConnectionLimits(100, 100, creation_rate=20, listeners=own)
    assert 99 <= accepted(quotas, clock, 10) <= 102
    assert 199 <= accepted(quotas, clock, 10, "OTHER") <= 222
    assert 49 <= accepted(quotas, clock, 10, "BROKER") <= 52


def test_what_a_listeners_rate_holds_back_does_not_use_up_the_brokers() -> None:
    clock = ManualTime(100.0)
    quotas = ConnectionQuotas(100, 100, {}, clock_s=clock)
    quotas.limits = ConnectionLimits(100, 100, creation_rate=2, listeners={"CLIENT": ListenerLimits(9, 1)})
    clock.now += 1
    assert quotas.pause_s("CLIENT") == 0
    assert all(quotas.pause_s("CLIENT") > 0 for _ in range(9))
    assert quotas.pause_s("OTHER") == 0
    assert quotas.pause_s("OTHER") > 0
