"""Connections that wait for max.connection.creation.rate: each address has its turn."""

from __future__ import annotations

import socket

from broker.network.arrivals import Arrivals, has_gone
from rig.wait import wait_until


def test_who_comes_beside_one_that_connects_all_the_time_is_next_but_one() -> None:
    arrivals: Arrivals[str] = Arrivals()
    for number in range(5):
        assert arrivals.add("storm", f"s{number}")
    assert arrivals.add("one", "o")
    assert [arrivals.next()[1] for _ in range(len(arrivals))] == ["s0", "o", "s1", "s2", "s3", "s4"]


def test_one_address_leaves_places_for_others_and_gets_its_own_back() -> None:
    arrivals: Arrivals[int] = Arrivals(8)
    assert [arrivals.add("storm", number) for number in range(6)] == [True] * 4 + [False] * 2
    assert arrivals.add("one", 0)
    assert not arrivals.add("storm", 6)
    while arrivals:
        arrivals.next()
    assert arrivals.add("storm", 7)
    assert arrivals.next() == ("storm", 7)
    assert not arrivals._by_address


def test_who_hangs_up_while_it_waits_is_seen_unless_it_left_something() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert not has_gone(ours)
        theirs.close()
        wait_until(lambda: has_gone(ours))
    ours, theirs = socket.socketpair()
    with ours:
        theirs.send(b"a request")
        theirs.close()
        assert not has_gone(ours)
