"""Request times: every request lands in the bucket that Prometheus would put it in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.network.request_times import BOUNDS_MS, RequestTimes, total_times


@given(st.lists(st.integers(0, 20_000_000_000), min_size=1, max_size=50))
def test_cumulative_counts_are_those_of_the_times(elapsed: list[int]) -> None:
    times = RequestTimes()
    for each in elapsed:
        times.record(0, each)
    buckets, total_ms = total_times([times])[0]
    assert [bound for bound, _ in buckets] == [f"{bound:.6g}" for bound in BOUNDS_MS] + ["+Inf"]
    for (_, count), bound_ms in zip(buckets, BOUNDS_MS, strict=False):
        assert count == sum(each < bound_ms * 1e6 for each in elapsed)
    assert buckets[-1][1] == len(elapsed)
    assert total_ms == pytest.approx(sum(elapsed) / 1e6)


def test_processors_are_added_up_by_api() -> None:
    one, other = RequestTimes(), RequestTimes()
    one.record(0, 1_000_000)
    other.record(0, 1_000_000)
    other.record(1, 3_000_000)
    totals = total_times([one, other])
    assert {key: total for key, (_, total) in totals.items()} == {0: 2.0, 1: 3.0}
