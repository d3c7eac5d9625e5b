"""Rates over samples, by a clock that stands still: what Kafka's Rate, TokenBucket and Avg would say."""

from __future__ import annotations

import pytest

from broker.quotas.rate import MOST_MS, SampledAverage, SampledRate, TokenBucket, Windows

ELEVEN = Windows(11, 1_000)


def test_who_has_just_begun_is_measured_over_ten_seconds() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(1_000, 0)
    assert rate.window_ms(0) == 10_000
    assert rate.measure(0) == 100
    assert rate.window_ms(500) == 10_500


def test_after_ten_seconds_the_time_since_the_oldest_sample_counts() -> None:
    rate = SampledRate(ELEVEN)
    for second in range(11):
        rate.record(100, second * 1_000)
    assert rate.window_ms(10_000) == 10_000
    assert rate.measure(10_400) == pytest.approx(1_100 / 10.4)


def test_what_is_older_than_all_samples_no_longer_counts() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(1_000, 0)
    rate.record(500, 6_000)
    assert rate.measure(10_999) == pytest.approx(1_500 / 10.999)
    assert rate.measure(11_000) == pytest.approx(500 / 10)
    assert rate.measure(17_000) == 0


def test_a_sample_that_got_values_late_stays_whole() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(100, 0)
    rate.record(100, 900)
    assert rate.measure(11_500) == pytest.approx(200 / 11.5), "Kafka keeps samples that overlap the window"
    assert rate.measure(11_900) == 0


def test_what_is_taken_back_was_never_there() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(1_000, 0)
    rate.record(5_000, 100)
    rate.record(-5_000, 100)
    assert rate.measure(100) == pytest.approx(1_000 / 10.1)


def test_samples_are_reused_and_their_number_does_not_grow() -> None:
    rate = SampledRate(Windows(3, 1_000))
    for tick in range(100):
        rate.record(10, tick * 500)
    assert len(rate._samples) == 4
    assert rate.measure(49_500) == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize("used", [1_001, 2_000, 10_000])
def test_the_throttle_time_brings_the_rate_down_to_its_bound(used: int) -> None:
    rate = SampledRate(ELEVEN)
    rate.record(used, 0)
    wait_ms = rate.throttle_ms(100, 0)
    assert wait_ms == pytest.approx((used / 10 - 100) / 100 * 10_000)
    assert used / (10 + wait_ms / 1_000) == pytest.approx(100)


def test_at_the_bound_nobody_waits() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(1_000, 0)
    assert rate.throttle_ms(100, 0) == 0


def test_a_bound_of_nothing_lets_nobody_through() -> None:
    rate = SampledRate(ELEVEN)
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == MOST_MS
    assert rate.throttle_ms(1e-9, 0) == MOST_MS


def test_the_sum_is_that_of_the_samples_after_any_steps() -> None:
    rate = SampledRate(Windows(4, 100))
    now_ms = 0
    for step in (0, 1, 50, 99, 100, 101, 250, 399, 400, 401, 1, 1, 3_000, 20, 20, 380):
        now_ms += step
        rate.record(step + 1, now_ms)
        rate.measure(now_ms)
        assert rate.total == sum(sample.value for sample in rate._samples)
        assert all(now_ms - sample.last_ms < 400 for sample in rate._samples if sample.value)


def test_a_bucket_is_full_at_first_and_fills_at_its_rate() -> None:
    bucket = TokenBucket(ELEVEN)
    assert bucket.tokens(2, 5) == 22
    bucket.take(30, 2, 5)
    assert bucket.throttle_ms(2, 5) == 4_000
    assert bucket.throttle_ms(2, 3_005) == 1_000
    assert bucket.throttle_ms(2, 4_005) == 0
    assert bucket.tokens(2, 5_005) == 2
    assert bucket.tokens(2, 99_000) == 22


def test_another_rate_changes_the_burst() -> None:
    bucket = TokenBucket(ELEVEN)
    assert bucket.tokens(10, 0) == 110
    assert bucket.tokens(1, 1_000) == 11


def test_an_average_is_of_the_last_samples() -> None:
    average = SampledAverage(Windows(2, 30_000))
    assert average.measure(0) == 0
    average.record(100, 0)
    average.record(300, 1_000)
    assert average.measure(1_000) == 200
    assert average.measure(61_000) == 0
