"""Limits the log lines that clients cause: the journal drops lines of all kinds when one kind floods it.

Few lines are all logged. Of many, some are logged together with the number of the omitted ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class LineBudget:
    """The budget for one kind of log line: ``per_second``, and up to ``at_once`` in a burst. Thread-safe.
    ``clock_ms`` is monotonic. Owned by the code that writes the lines.
    """

    def __init__(self, clock_ms: Callable[[], int], *, per_second: int, at_once: int) -> None:
        self._clock_ms = clock_ms
        self._per_ms = per_second / 1_000
        self._at_once = at_once
        self._left: float = at_once
        self._at_ms = clock_ms()
        self._left_out = 0
        self._lock = threading.Lock()  # lock order 85

    def left_out(self) -> int | None:
        """The number of lines omitted since the last one; None if this line must be omitted too."""
        with self._lock:
            now_ms = self._clock_ms()
            self._left = min(self._left + max(now_ms - self._at_ms, 0) * self._per_ms, self._at_once)
            self._at_ms = now_ms
            if self._left < 1:
                self._left_out += 1
                return None
            self._left -= 1
            count, self._left_out = self._left_out, 0
            return count
