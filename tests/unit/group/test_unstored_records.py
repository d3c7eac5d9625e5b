"""The records that a group has still to write keep the order of its changes, also those that were written in vain."""

from __future__ import annotations

from itertools import permutations

import pytest

from broker.coordinator.group.consumer.unstored import Records, Unstored

A, B, C, D, E = (bytes([number]) for number in b"abcde")


def one_each(records: Records) -> list[Records]:
    return [{key: value} for key, value in records.items()]


def keys(unstored: Unstored) -> list[bytes]:
    return list(unstored.noted)


@pytest.mark.parametrize("ended", list(permutations(range(3))))
def test_batches_of_one_write_that_fail_are_written_again_in_their_order(ended: tuple[int, ...]) -> None:
    unstored = Unstored()
    unstored.note_all({A: None, B: b"1", C: None})
    number, batches = unstored.take(one_each)
    unstored.note(D, b"2")
    for place in ended:
        unstored.finish(number, batches[place], failed=True)
    assert keys(unstored) == [A, B, C, D]


def test_writes_that_fail_are_written_again_in_their_order() -> None:
    unstored = Unstored()
    unstored.note_all({A: None, B: None})
    first, (one, two) = unstored.take(one_each)
    unstored.note_all({C: None, D: None})
    second, (three, four) = unstored.take(one_each)
    unstored.finish(second, four, failed=True)
    unstored.finish(first, two, failed=True)
    unstored.finish(second, three, failed=False)
    unstored.finish(first, one, failed=True)
    assert keys(unstored) == [A, B, D]
    assert unstored.take(one_each)[1] == [{A: None}, {B: None}, {D: None}]


def test_a_record_that_was_changed_since_it_was_written_in_vain_is_a_later_one() -> None:
    unstored = Unstored()
    unstored.note_all({A: None, B: None})
    number, batches = unstored.take(one_each)
    for batch in reversed(batches):
        unstored.finish(number, batch, failed=True)
    unstored.note(E, b"1")
    unstored.note(A, b"2")
    assert unstored.noted == {B: None, E: b"1", A: b"2"}
    assert keys(unstored) == [B, E, A]
