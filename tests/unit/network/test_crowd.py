"""Who is next where more are ready than a turn has time for."""

from __future__ import annotations

from broker.network.crowd import Crowd, rank
from broker.network.request_channel import ConnectionInfo
from broker.network.shares import asked_after

MS = 1_000_000
NOW_NS = 1_000 * MS


class Member:
    """As much of a connection as a Crowd looks at."""

    def __init__(
        self, name: str, address: str = "10.0.0.1", cost_ms: float = 0.3, rested_ms: int = 1
    ) -> None:
        self.info = ConnectionInfo(name, address, "PLAINTEXT")
        self.asked_ns = int(cost_ms * MS)
        self.last_active_ms = NOW_NS // MS - rested_ms

    def __repr__(self) -> str:
        return self.info.connection_id


def crowd_of(*members: Member) -> Crowd[Member]:
    crowd: Crowd[Member] = Crowd()
    for number, member in enumerate(members, 1):
        crowd.add(member, number, NOW_NS)
    return crowd


def test_who_asks_for_little_comes_before_those_who_ask_for_more_and_came_first() -> None:
    greedy = [Member(f"g{number}") for number in range(5)]
    small, seldom = Member("small", cost_ms=0.05), Member("seldom", rested_ms=10)
    crowd = crowd_of(*greedy, small, seldom)
    first = [crowd.least()[0] for _ in range(len(crowd))]
    assert set(first[:2]) == {small, seldom}
    assert first[2:] == greedy, "equals keep their order"


def test_addresses_take_turns_whatever_each_asks_for() -> None:
    crowd = crowd_of(Member("a1"), Member("a2"), Member("a3"), Member("b1", "10.0.0.2", cost_ms=0.5))
    assert [str(crowd.next()[0]) for _ in range(len(crowd))] == ["a1", "b1", "a2", "a3"]


def test_who_was_served_by_one_order_is_not_in_the_other() -> None:
    one, two, three = Member("one"), Member("two", cost_ms=0.01), Member("three")
    crowd = crowd_of(one, two, three)
    assert crowd.least() == (two, 2)
    assert crowd.next() == (one, 1)
    assert crowd.remove(three) == 3
    assert not len(crowd)
    assert three not in crowd
    assert crowd.remove(three) == 0
    assert not crowd._addresses
    assert not any(crowd._ranks)


def test_news_of_who_waits_is_kept_with_its_place() -> None:
    one, two = Member("one"), Member("two")
    crowd = crowd_of(one, two)
    crowd.add(one, 8, NOW_NS)
    assert crowd.next() == (one, 1 | 8)
    assert len(crowd) == 1


def test_ten_thousand_that_rest_for_a_second_do_not_ask_for_less_than_one_that_rests_for_ten_milliseconds() -> (
    None
):
    assert rank(360_000, 1_000 * MS) > rank(100_000, 10 * MS)


def test_what_visits_cost_is_an_average_in_which_one_dear_one_is_soon_forgotten() -> None:
    asked = asked_after(100_000, 1_000 * MS)
    assert asked < 250_000
    for _ in range(5):
        asked = asked_after(asked, 100_000)
    assert asked < 130_000


def test_a_rank_is_there_for_everybody() -> None:
    assert rank(0, 10**18) == 0
    assert [rank(500_000, rested) for rested in (0, 500_000, 8 * MS)] == [21, 19, 12]
    crowd = crowd_of(Member("never rests", rested_ms=0), Member("asks nothing", cost_ms=0))
    assert len(crowd) == 2
