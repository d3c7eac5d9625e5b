"""How many lines of one kind the log gets, where clients cause them: the journal drops everybody's lines when one kind
floods it. Of few, none is missing; of many, some stand for all, with their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class LineBudget:
    """How many lines the log gets of one kind: ``per_second``, and ``at_once`` of them without a pause.
    Thread-safe. ``clock_ms`` is monotonic. Who writes the lines owns it.
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
        """How many lines were left out since the last one; None when this one is to be, too."""
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
