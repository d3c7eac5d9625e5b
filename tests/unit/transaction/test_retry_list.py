"""Retries come all at once, and the later the more there are."""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinator.transaction.retry_list import RETRY_MS, RetryList


class Retries:
    """A list with its schedule, and what it tried again."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[Callable[[], None], int]] = []
        self.tried: list[list[int]] = []
        self.list = RetryList[int](
            lambda action, delay_ms: self.scheduled.append((action, delay_ms)), self.tried.append
        )

    def run(self) -> None:
        ((action, _),) = self.scheduled
        self.scheduled.clear()
        action()


def test_what_fails_until_the_next_try_is_tried_together() -> None:
    retries = Retries()
    for number in range(5):
        retries.list.add([number])
    assert [delay_ms for _, delay_ms in retries.scheduled] == [RETRY_MS]
    assert retries.list.size == 5
    retries.run()
    assert (retries.tried, retries.list.size) == ([[0, 1, 2, 3, 4]], 0)
    retries.list.add([7])
    retries.run()
    assert retries.tried[1:] == [[7]]


def test_very_many_are_tried_a_thousand_at_once_and_in_their_order() -> None:
    retries = Retries()
    retries.list.add(range(2_500))
    retries.run()
    assert [len(some) for some in retries.tried] == [1_000, 1_000, 500]
    assert [thing for some in retries.tried for thing in some] == list(range(2_500))


def test_after_a_failure_the_later_ones_are_tried_again_too() -> None:
    retries = Retries()

    def retry(some: list[int]) -> None:
        if some[0] == 1_000 and not retries.tried[1:]:
            retries.tried.append([])
            raise RuntimeError("out of memory")
        retries.tried.append(some)

    retries.list._retry = retry
    retries.list.add(range(2_500))
    retries.run()
    assert retries.list.size == 1_500
    retries.run()
    assert [thing for some in retries.tried for thing in some] == list(range(2_500))


def test_nothing_is_scheduled_for_nothing() -> None:
    retries = Retries()
    retries.list.add([])
    assert retries.scheduled == []


def test_very_many_wait_longer_so_that_they_take_a_bounded_part_of_a_cpu() -> None:
    retries = Retries()
    retries.list.add(range(100_000))
    assert [delay_ms for _, delay_ms in retries.scheduled] == [10_000]


def test_what_could_not_be_tried_is_tried_again() -> None:
    retries = Retries()

    def retry(_things: list[int]) -> None:
        raise RuntimeError("out of memory")

    retries.list._retry, working = retry, retries.list._retry
    retries.list.add([1, 2])
    retries.run()
    assert retries.list.size == 2
    retries.list._retry = working
    retries.run()
    assert retries.tried == [[1, 2]]
