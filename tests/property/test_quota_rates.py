"""Rates of quotas against Kafka's rule, written down plainly: every sample is looked at each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.quotas.rate import SampledRate, Windows


class PlainRate:
    """Kafka's Rate over a WindowedSum: rows of when a sample began, its last value's time, and its sum."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.rows: list[list[int]] = []
        self.current = 0

    def record(self, value: int, now_ms: int) -> None:
        if not self.rows:
            self.rows.append([now_ms, now_ms, 0])
        elif now_ms - self.rows[self.current][0] >= self.windows.window_ms:
            self.current = (self.current + 1) % (self.windows.samples + 1)
            if self.current == len(self.rows):
                self.rows.append([now_ms, now_ms, 0])
            self.rows[self.current] = [now_ms, now_ms, 0]
        self.rows[self.current][1] = now_ms
        self.rows[self.current][2] += value
        self.purge(now_ms)

    def purge(self, now_ms: int) -> None:
        for row in self.rows:
            if now_ms - row[1] >= self.windows.kept_ms:
                row[:] = [now_ms, now_ms, 0]

    def measure(self, now_ms: int) -> tuple[int, int]:
        """The sum and the time that it is divided by."""
        self.purge(now_ms)
        elapsed_ms = now_ms - min((row[0] for row in self.rows), default=now_ms)
        whole = elapsed_ms // self.windows.window_ms
        if whole < self.windows.samples - 1:
            elapsed_ms += (self.windows.samples - 1 - whole) * self.windows.window_ms
        return sum(row[2] for row in self.rows), max(elapsed_ms, 1)


STEPS = st.lists(
    st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 2_000)), st.integers(-5, 100), st.booleans()),
    max_size=80,
)


@given(samples=st.integers(1, 11), window_ms=st.sampled_from([1, 10, 100]), steps=STEPS)
def test_the_short_way_adds_up_to_the_same_at_every_moment(
    samples: int, window_ms: int, steps: list[tuple[int, int, bool]]
) -> None:
    windows = Windows(samples, window_ms)
    rate, plain = SampledRate(windows), PlainRate(windows)
    now_ms = 1_000
    for passed_ms, value, is_measured in steps:
        now_ms += passed_ms
        rate.record(value, now_ms)
        plain.record(value, now_ms)
        if is_measured:
            now_ms += passed_ms // 2
            measured_ms = rate.window_ms(now_ms)
            assert (rate.total, measured_ms) == plain.measure(now_ms)


@given(
    samples=st.integers(2, 11), bound=st.integers(1, 1_000), sizes=st.lists(st.integers(1, 5_000), min_size=1)
)
def test_who_waits_for_the_throttle_time_is_at_the_bound(samples: int, bound: int, sizes: list[int]) -> None:
    """As long as no whole window ends meanwhile, which only lets more through."""
    windows = Windows(samples, 1_000_000)
    rate = SampledRate(windows)
    now_ms = 0
    for size in sizes:
        rate.record(size, now_ms)
        wait_ms = rate.throttle_ms(bound, now_ms)
        assert (wait_ms > 0) == (rate.measure(now_ms) > bound)
        if now_ms + wait_ms >= 1_000_000:
            return
        now_ms += wait_ms
        assert rate.measure(now_ms) <= bound * 1.000_01
