"""Limits how often segments are rolled for their age. Clients influence that age: with a ``segment.ms`` of a
millisecond, or with timestamps weeks apart, each append would create a new segment.

A roll for age can wait: the segment keeps growing, and the next append tries again.
"""

from __future__ import annotations

from typing import Final

_PAUSE_MS: Final = 1_000
_PER_SECOND: Final = 50
_AT_ONCE: Final = 20


class RollPace:
    """The pace of rolls for all logs that share it: ``per_second`` rolls, ``at_once`` of them without a
    pause. Times may come from any one clock; if it is set back, the count restarts.

    It has no lock: two threads at once may both get the last available roll.
    """

    __slots__ = ("_at_ms", "_at_once", "_left", "_per_ms")

    def __init__(self, per_second: int = _PER_SECOND, at_once: int = _AT_ONCE) -> None:
        self._per_ms = per_second / 1_000
        self._at_once = at_once
        self._left: float = float(at_once)
        self._at_ms = 0

    def allows(self, now_ms: int, last_ms: int) -> bool:
        """Whether a log last rolled for its age at ``last_ms`` may be rolled now. True counts as a roll."""
        if 0 <= now_ms - last_ms < _PAUSE_MS:
            return False
        self._left = min(self._left + max(now_ms - self._at_ms, 0) * self._per_ms, self._at_once)
        self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
