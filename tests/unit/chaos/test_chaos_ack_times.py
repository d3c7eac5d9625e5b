"""Gaps between acknowledgements, from bursts that processes report."""

from __future__ import annotations

import pytest

from chaos.ack_times import AckTimes, bursts_of

ONE, TWO = ("t", 0), ("t", 1)


def times(*moments: tuple[tuple[str, int], float]) -> AckTimes:
    found = AckTimes()
    found.add(bursts_of(moments))
    return found


def test_acknowledgements_close_together_are_one_burst() -> None:
    assert bursts_of([(ONE, 1.0), (ONE, 1.01), (ONE, 1.025), (ONE, 2.0)]) == [
        (ONE, 1.0, 1.025),
        (ONE, 2.0, 2.0),
    ]


def test_each_partition_has_bursts_of_its_own() -> None:
    assert bursts_of([(ONE, 1.0), (TWO, 1.01)]) == [(ONE, 1.0, 1.0), (TWO, 1.01, 1.01)]


def test_the_gap_is_the_longest_time_in_which_no_partition_acknowledged() -> None:
    seen = times((ONE, 1.0), (TWO, 2.0), (ONE, 5.0))
    assert seen.longest_gap_s(1.0, 5.0) == pytest.approx(3.0)
    assert seen.gaps_s(1.0, 5.0) == {ONE: pytest.approx(4.0), TWO: pytest.approx(3.0)}


def test_a_partition_is_quiet_until_it_acknowledges_again() -> None:
    seen = times((ONE, 1.0), (TWO, 2.0))
    assert seen.quiet_since(1.5) == [ONE]
    assert seen.quiet_since(2.0) == [ONE, TWO]
    seen.add([(ONE, 3.0, 3.0)])
    assert seen.quiet_since(2.0) == [TWO]


def test_the_windows_ends_bound_the_gap() -> None:
    seen = times((ONE, 1.0), (ONE, 5.0), (ONE, 9.0))
    assert seen.longest_gap_s(3.0, 6.0) == pytest.approx(2.0)
    assert seen.longest_gap_s(5.0, 8.0) == pytest.approx(3.0)
    assert seen.longest_gap_s(6.0, 8.0) == pytest.approx(2.0)


def test_without_any_acknowledgement_the_whole_window_is_the_gap() -> None:
    assert AckTimes().longest_gap_s(1.0, 4.0) == pytest.approx(3.0)


def test_a_burst_over_a_whole_window_leaves_no_gap() -> None:
    seen = times(*((ONE, 1.0 + number * 0.01) for number in range(100)))
    assert seen.longest_gap_s(1.2, 1.8) == 0.0


def test_a_burst_goes_on_over_two_reports() -> None:
    seen = AckTimes()
    seen.add(bursts_of([(ONE, 1.0)]))
    seen.add(bursts_of([(ONE, 1.015), (ONE, 1.03)]))
    assert seen.bursts() == [(ONE, 1.0, 1.03)]


def test_a_report_of_another_client_about_an_earlier_moment_does_not_shorten_a_burst() -> None:
    seen = times((ONE, 1.0), (ONE, 1.015))
    seen.add(bursts_of([(ONE, 1.01)]))
    assert seen.bursts() == [(ONE, 1.0, 1.015)]
