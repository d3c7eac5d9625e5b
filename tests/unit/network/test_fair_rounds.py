"""Who waits for a handler has its turn by its address, whatever others ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.network.fair_rounds import FairRounds


def drained(rounds: FairRounds[object]) -> list[object]:
    return [rounds.next()[1] for _ in range(len(rounds))]


def test_addresses_take_turns_however_many_connections_one_has() -> None:
    rounds: FairRounds[str] = FairRounds()
    for number in range(4):
        rounds.add("greedy", f"c{number}", f"greedy {number}")
    rounds.add("modest", "m", "modest 0")
    rounds.add("modest", "m", "modest 1")
    assert drained(rounds) == ["greedy 0", "modest 0", "greedy 1", "modest 1", "greedy 2", "greedy 3"]


def test_connections_of_an_address_take_turns_and_keep_their_order() -> None:
    rounds: FairRounds[str] = FairRounds()
    for number in range(3):
        rounds.add("a", "long", f"long {number}")
    rounds.add("a", "short", "short 0")
    assert drained(rounds) == ["long 0", "short 0", "long 1", "long 2"]


def test_nothing_is_left_of_who_has_nothing_waiting() -> None:
    rounds: FairRounds[int] = FairRounds()
    rounds.add("a", "1", 1)
    assert rounds.next() == ("a", 1)
    assert not rounds._addresses
    with pytest.raises(KeyError):
        rounds.next()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=60))
def test_between_two_turns_of_who_waits_each_other_address_has_one_at_most(asked) -> None:
    rounds: FairRounds[tuple[str, str, int]] = FairRounds()
    for number, (address, connection) in enumerate(asked):
        rounds.add(address, connection, (address, connection, number))
    order = drained(rounds)
    assert sorted(order) == sorted((*who, number) for number, who in enumerate(asked))
    for who in {(address, connection) for address, connection, _ in order}:
        numbers = [number for address, connection, number in order if (address, connection) == who]
        assert numbers == sorted(numbers)
    for one in "abc":
        last = max((place for place, row in enumerate(order) if row[0] == one), default=0)
        for other in set("abc") - {one}:
            run = 0
            for row in order[:last]:
                run = 0 if row[0] == one else run + (row[0] == other)
                assert run <= 1
