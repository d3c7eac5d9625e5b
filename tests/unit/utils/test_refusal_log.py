"""Who is refused as fast as it can ask gets one line a second, and the number of those it did not get."""

from __future__ import annotations

from broker.utils.refusal_log import Refusals
from tests.support.clocks import ManualTime

SECOND = 1_000_000_000


def test_a_peer_has_one_line_a_second_which_tells_what_was_left_out() -> None:
    clock = ManualTime(5 * SECOND)
    refusals = Refusals(clock)
    assert refusals.left_out("a") == 0
    assert [refusals.left_out("a") for _ in range(5)] == [None] * 5
    clock.now += SECOND
    assert refusals.left_out("a") == 5
    clock.now += SECOND
    assert refusals.left_out("a") == 0


def test_one_peer_does_not_take_anothers_line() -> None:
    refusals = Refusals(ManualTime(5 * SECOND))
    assert refusals.left_out("a") == 0
    assert refusals.left_out("b") == 0


def test_many_peers_at_once_share_one_line() -> None:
    clock = ManualTime(5 * SECOND)
    refusals = Refusals(clock, max_peers=10)
    lines = [refusals.left_out(f"peer-{number}") for number in range(1000)]
    assert sum(line is not None for line in lines) == 11
    clock.now += SECOND
    lines = [refusals.left_out(f"other-{number}") for number in range(1000)]
    assert sum(line is not None for line in lines) <= 12


def test_the_oldest_peer_gives_its_place_to_a_new_one() -> None:
    clock = ManualTime(5 * SECOND)
    refusals = Refusals(clock, max_peers=2)
    for peer in "abcdef":
        assert refusals.left_out(peer) == 0
        clock.now += SECOND
