"""What was appended to a partition and may not be lost: the ledger that every read is held against."""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import NamedTuple

_MOST_KEPT = 4000


class Mark(NamedTuple):
    """A moment of a partition: which log had its name, and how many truncations it had seen."""

    life: int
    cuts: int


_AMID_A_CHANGE = Mark(-1, -1)


class Written(NamedTuple):
    """A record that was acknowledged, and since when it must be there."""

    offset: int
    value: bytes
    since: Mark


class History:
    """One partition's, by name. Its own lock is held for moments, and over nothing of the broker.

    Whoever truncates, deletes or makes anew says so before (``begin_cut``, ``begin_life``) and after (``settled``).
    """

    def __init__(self) -> None:
        self.written: deque[Written] = deque(maxlen=_MOST_KEPT)
        self.latest: dict[bytes, Written] = {}
        self._lock = threading.Lock()
        self._life = 0
        self._cuts: list[int] = []
        self._changing = False

    @property
    def life(self) -> int:
        return self._life

    def mark(self) -> Mark:
        """This moment; one amid a change promises nothing."""
        with self._lock:
            return _AMID_A_CHANGE if self._changing else Mark(self._life, len(self._cuts))

    def is_still(self, mark: Mark) -> bool:
        """Whether nothing was taken away since ``mark``, nor is now."""
        with self._lock:
            return not self._changing and mark == (self._life, len(self._cuts))

    def keeps(self, offset: int, mark: Mark) -> bool:
        """Whether what stood at ``offset`` at ``mark`` must still stand there."""
        with self._lock:
            return mark.life == self._life and min(self._cuts[mark.cuts :], default=sys.maxsize) > offset

    def add(self, written: Written) -> None:
        """For a log whose records all stay, or go from its start."""
        self.written.append(written)

    def add_keyed(self, key: bytes, written: Written) -> None:
        """For a compacted log: what was acknowledged last of each key stays, or gives way to a later one."""
        with self._lock:
            last = self.latest.get(key)
            # What was cut off may have been the last: then only the later moment counts.
            if last is None or (last.since, last.offset) < (written.since, written.offset):
                self.latest[key] = written

    def keyed(self) -> list[tuple[bytes, Written]]:
        with self._lock:
            return list(self.latest.items())

    def forget(self) -> None:
        with self._lock:
            self.written.clear()
            self.latest.clear()

    def begin_cut(self, offset: int) -> None:
        with self._lock:
            self._cuts.append(offset)
            self._changing = True

    def begin_life(self) -> int:
        """The log of this name goes, and another one comes; the number of the new one."""
        with self._lock:
            self._life += 1
            self._cuts.clear()
            self._changing = True
            return self._life

    def settled(self) -> None:
        with self._lock:
            self._changing = False
