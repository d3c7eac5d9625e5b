"""Rates over sampled windows, and the token bucket: how Kafka measures a quota, and how long a client that is
above it must wait.

Everything takes ``now_ms`` of a monotonic clock. Nothing here has a lock; :mod:`.client_quota_manager` has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# Kafka's UnlimitedQuota.
UNLIMITED: Final = float((1 << 63) - 1)
# The longest throttle time that a response can carry.
MOST_MS: Final = (1 << 31) - 1
_NEVER: Final = -(1 << 62)


class Windows(NamedTuple):
    """The number of samples and their length; ``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int = 11
    window_ms: int = 1_000

    @property
    def kept_ms(self) -> int:
        return self.samples * self.window_ms

    @property
    def full_ms(self) -> int:
        """The length of all samples but the current one: the least time that a rate is computed over."""
        return (self.samples - 1) * self.window_ms


CLIENT_WINDOWS: Final = Windows()
# metrics.num.samples and metrics.sample.window.ms.
AVERAGE_WINDOWS: Final = Windows(2, 30_000)


class _Sample:
    """The sum of one window, when it began, and when it last got a value. Kafka's SampledStat.Sample."""

    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.began_ms = self.last_ms = now_ms


class SampledRate:
    """A rate per second over the last samples; Kafka's Rate over a WindowedSum.

    A sample ends ``window_ms`` after its beginning, and is dropped when its last value is older than all
    samples together. The rate is the sum divided by the time since the oldest sample began. That time is
    padded to ``samples - 1`` whole windows, so that a client that has just begun does not look too fast.

    Most calls fall into the current sample and cost two additions: ``_calm_until_ms`` says until when no
    sample ends or expires.
    """

    __slots__ = ("_calm_until_ms", "_current", "_oldest_ms", "_place", "_samples", "total", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.total = 0.0
        self._samples: list[_Sample] = []
        self._place = 0
        self._current = _Sample(0)
        self._oldest_ms = 0
        self._calm_until_ms = _NEVER

    @property
    def last_ms(self) -> int:
        """When the last value came."""
        return self._current.last_ms

    def record(self, value: float, now_ms: int) -> float:
        """Adds a value, which may be negative to take an earlier one back. Returns the total."""
        if now_ms >= self._calm_until_ms:
            self._advance(now_ms)
        current = self._current
        current.value += value
        current.last_ms = now_ms
        self.total = total = self.total + value
        return total

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        window_ms = self.window_ms(now_ms)  # which also drops what has expired
        return 1_000.0 * self.total / window_ms

    def window_ms(self, now_ms: int) -> int:
        """The time that the rate is computed over; Kafka's Rate.windowSize."""
        if now_ms >= self._calm_until_ms:
            self._expire(now_ms)
        elapsed_ms = now_ms - self._oldest_ms if self._samples else 0
        missing = self.windows.samples - 1 - elapsed_ms // self.windows.window_ms
        if missing > 0:
            elapsed_ms += missing * self.windows.window_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long until the rate is down at ``bound`` if nothing more is recorded; 0 when it is not above.

        A rate O over a window W is down at T after X when O * W / (W + X) = T.
        """
        window_ms = self.window_ms(now_ms)
        rate = 1_000.0 * self.total / window_ms
        if rate <= bound:
            return 0
        if bound <= 0:
            return MOST_MS
        return min(int((rate - bound) / bound * window_ms + 0.5), MOST_MS)

    def _advance(self, now_ms: int) -> None:
        """Begins the next sample if the current one is complete, and drops those that have expired."""
        samples = self._samples
        if not samples:
            self._current = _Sample(now_ms)
            samples.append(self._current)
        elif now_ms - self._current.began_ms >= self.windows.window_ms:
            # One more than is measured: the oldest may have begun before the window and overlap it.
            self._place = (self._place + 1) % (self.windows.samples + 1)
            if self._place == len(samples):
                samples.append(_Sample(now_ms))
            self._current = samples[self._place]
            self._current.reset(now_ms)
        self._expire(now_ms)

    def _expire(self, now_ms: int) -> None:
        kept_ms = self.windows.kept_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= kept_ms:
                sample.reset(now_ms)
        self.total = sum(sample.value for sample in self._samples)
        self._oldest_ms = min((sample.began_ms for sample in self._samples), default=now_ms)
        others_ms = min(
            (sample.last_ms for sample in self._samples if sample is not self._current), default=now_ms
        )
        self._calm_until_ms = min(self._current.began_ms + self.windows.window_ms, others_ms + kept_ms)


class TokenBucket:
    """Tokens that come at a rate, up to a burst of all samples; Kafka's TokenBucket (KIP-599).

    Whoever finds tokens may take more than there are; the bucket is then below zero, and empty until it is
    full again at the rate.
    """

    __slots__ = ("_at_ms", "_tokens", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._tokens: float | None = None  # full, at whatever rate is first asked for
        self._at_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """The tokens at ``now_ms``, of which ``rate`` come each second."""
        burst = self.windows.kept_ms / 1_000 * rate
        before = self._tokens
        if before is None:
            before = burst
        self._tokens = min(burst, before + rate * (now_ms - self._at_ms) / 1_000)
        self._at_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long until there are no fewer than zero tokens."""
        tokens = self.tokens(rate, now_ms)
        if tokens >= 0:
            return 0
        return MOST_MS if rate <= 0 else min(int(-tokens / rate * 1_000 + 0.5), MOST_MS)


class SampledAverage:
    """The average of the values of the last samples; Kafka's Avg."""

    __slots__ = ("_counts", "_sums")

    def __init__(self, windows: Windows) -> None:
        self._sums = SampledRate(windows)
        self._counts = SampledRate(windows)

    def record(self, value: float, now_ms: int) -> None:
        self._sums.record(value, now_ms)
        self._counts.record(1, now_ms)

    def measure(self, now_ms: int) -> float:
        """The average; 0 when there are no values."""
        self._sums.window_ms(now_ms)
        self._counts.window_ms(now_ms)
        return self._sums.total / self._counts.total if self._counts.total else 0.0
