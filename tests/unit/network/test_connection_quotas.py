"""How many connections, and how many new ones a second."""

from __future__ import annotations

import pytest

from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas, TooManyConnectionsError
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
    quotas = ConnectionQuotas(100, 100, {}, 0, protected_listener="BROKER", clock_s=clock)
    assert quotas.pause_s("CLIENT") == 0  # the one that is always allowed
    assert quotas.pause_s("CLIENT") == 1
    assert quotas.pause_s("BROKER") == 0


def test_limits_change_while_connections_are_there() -> None:
    quotas = ConnectionQuotas(2, 2, {})
    quotas.add("a")
    quotas.add("a")
    with pytest.raises(TooManyConnectionsError, match=r"per\.ip=2"):
        quotas.add("a")
    quotas.limits = ConnectionLimits(3, 3)
    quotas.add("a")
    quotas.limits = ConnectionLimits(3, 4, {"b": 0})
    assert quotas.is_full("CLIENT")
    with pytest.raises(TooManyConnectionsError, match=r"per\.ip=0"):
        quotas.add("b")
    for _ in range(3):
        quotas.remove("a")
    assert quotas.total == 0


def test_brokers_are_let_in_beyond_the_limit_and_the_others_give_way() -> None:
    quotas = ConnectionQuotas(1, 100, {}, protected_listener="BROKER")
    quotas.add("client")
    assert (quotas.is_full("CLIENT"), quotas.is_full("BROKER"), quotas.excess) == (True, False, 0)
    quotas.add("broker")
    assert quotas.excess == 1


def test_nobody_gives_way_where_brokers_have_no_listener_of_their_own() -> None:
    quotas = ConnectionQuotas(0, 100, {})
    quotas.add("client or broker")
    assert quotas.is_full("PLAINTEXT")
    assert quotas.excess == 0
