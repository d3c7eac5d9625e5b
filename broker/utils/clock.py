"""Time as a parameter: logic takes ``now`` as an argument, and only the outermost code reads
a :class:`Clock`.
"""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Wall time for timestamps and files, monotonic time for durations."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes backwards."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


SYSTEM_CLOCK: Final = SystemClock()


# threading refuses to wait for more than some centuries, and who means "never" sets the largest number there is.
_MOST_WAIT_MS: Final = 3_600_000


def wait_s(until_ms: int | None) -> float | None:
    """How long a loop waits, in seconds, that looks at the time again afterwards; None is for ever."""
    return None if until_ms is None else min(until_ms, _MOST_WAIT_MS) / 1000
