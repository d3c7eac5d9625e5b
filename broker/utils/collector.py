"""Decides when the garbage collector runs a full collection.

By default, Python runs one whenever the old generation grew by a quarter, on whichever thread creates
objects, and all other threads stop meanwhile. While one request of a hundred thousand elements was handled,
every client repeatedly waited 30 to 60 ms. So a running broker only collects the young generations
automatically, which takes some microseconds. Full collections run at chosen moments: a short one when the
broker has time, a long one when no requests arrive.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024
_NEVER: Final = (1 << 31) - 1
# Collections of the second generation after which a full one is worthwhile; each means about 7,000
# new objects.
WORTH_LOOKS: Final = 10
# The time that a full collection takes for that many objects. It is worthwhile again when one in four is new.
_LOOK_S: Final = 7_000 * 70e-9
_PART: Final = 4
# The share of time that full collections may take at most.
MOST_SHARE: Final = 0.01
# A collection that may take longer than this waits until the broker is idle.
SHORT_S: Final = 0.02
# A collection does not wait for an idle moment when the process grew by this much, or after this time.
GROWN_BYTES: Final = 512 * MIB
LONGEST_WAIT_S: Final = 300.0
# Shares of one CPU: below the first the broker has time, below the second it is idle.
CALM_SHARE: Final = 0.5
IDLE_SHARE: Final = 0.02


def leave_old_objects() -> None:
    """Stops automatic full collections; from now on :class:`CollectPolicy` decides about them."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)


@dataclass(slots=True)
class CollectPolicy:
    """Decides when to run a full collection. No IO; used by one thread. Times are on a monotonic clock."""

    resident: int
    _last_s: float | None = None
    _took_s: float = 0.0

    def is_due(self, now_s: float, looks: int, resident: int, share: float) -> bool:
        """Whether to collect now.

        ``looks``: collections of the young generations since the last full one. ``resident``: bytes of the
        process. ``share``: its use of a CPU.
        """
        if self._last_s is None:
            self._last_s = now_s
        self.resident = min(self.resident, resident)
        since_s = now_s - self._last_s
        if not looks or since_s * MOST_SHARE < self._took_s:
            return False
        if resident - self.resident >= GROWN_BYTES or since_s >= LONGEST_WAIT_S:
            return True
        if looks < max(WORTH_LOOKS, self._took_s / _LOOK_S / _PART):
            return False
        takes_s = self._took_s + looks * _LOOK_S
        return share < (CALM_SHARE if takes_s <= SHORT_S else IDLE_SHARE)

    def collected(self, now_s: float, took_s: float, resident: int) -> None:
        """Records a full collection."""
        self._last_s, self._took_s, self.resident = now_s, took_s, resident
