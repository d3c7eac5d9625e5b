"""When the interpreter's collector of cycles looks at all there is.

By itself it does so whenever what is old grew by a quarter, on whichever thread is making objects, and nobody else runs
meanwhile: beside a request of a hundred thousand elements every client waited 30 to 60 ms for it, again and again. So
once the broker runs only what is young is looked at by itself, some microseconds each time, and all of it at moments
that this decides: when it takes little and the broker has time, when it takes long and nobody is there.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024
_NEVER: Final = (1 << 31) - 1
# Looks at what is young (the second generation) that tell of something to find; some 7,000 new objects each.
WORTH_LOOKS: Final = 10
# What as many objects cost a look at everything, one in four of which is a new one when it is worth it again.
_LOOK_S: Final = 7_000 * 70e-9
_PART: Final = 4
# Of the time, at most.
MOST_SHARE: Final = 0.01
# What may take longer than this waits until nobody asks for anything.
SHORT_S: Final = 0.02
# Cycles wait for no such moment when they may be what makes the process grow, nor for longer than this.
GROWN_BYTES: Final = 512 * MIB
LONGEST_WAIT_S: Final = 300.0
# Of one CPU: what a broker takes that has time, and one that nobody asks for anything.
CALM_SHARE: Final = 0.5
IDLE_SHARE: Final = 0.02


def leave_old_objects() -> None:
    """From now on the collector leaves alone what is old: :class:`CollectPolicy` says when it is looked at."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)


@dataclass(slots=True)
class CollectPolicy:
    """Decides when to look at all. No IO; one thread. Times are on a clock that only goes on."""

    resident: int
    _last_s: float | None = None
    _took_s: float = 0.0

    def is_due(self, now_s: float, looks: int, resident: int, share: float) -> bool:
        """``looks``: how often the young were looked at since the last time; ``resident``: bytes of the process;
        ``share``: what it takes of a CPU.
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
        """It was done."""
        self._last_s, self._took_s, self.resident = now_s, took_s, resident
