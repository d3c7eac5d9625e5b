"""The records in which a group in memory and its log differ, and the answers that wait for them. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.protocol.errors import Errors

Records = dict[bytes, bytes | None]
Place = tuple[int, int]
"""The number of a write, and the place of a record in it."""
_LAST: Final[Place] = (sys.maxsize, 0)


class PendingAnswer(NamedTuple):
    """What a client gets once the records are stored. ``refused`` makes the result of an error."""

    respond: Callable[[Any], None]
    result: Any
    refused: Callable[[Errors], Any]


class Unstored:
    """The records that a group has still to write. The group owns it.

    Invariants: ``noted`` has the last values of those keys that are neither in the log nor being written, in the order
    of the changes. An answer waits only for the writes that were in progress when it was given.
    """

    __slots__ = ("_failed", "_in_progress", "_last_writes", "_number", "_waiting", "noted")

    def __init__(self) -> None:
        self.noted: Records = {}
        self._number = 0
        self._in_progress: dict[int, int] = {}  # the batches of each write that are not done
        self._last_writes: dict[bytes, Place] = {}  # the last write of each key that is being written
        self._failed: dict[bytes, Place] = {}  # where those of the noted were that were written in vain
        self._waiting: list[
            tuple[int, PendingAnswer]
        ] = []  # each with the write for which it waits, and those before

    @property
    def is_storing(self) -> bool:
        return bool(self._in_progress)

    @property
    def is_done(self) -> bool:
        """Whether everything is in the log."""
        return not (self.noted or self._in_progress)

    def note(self, key: bytes, value: bytes | None) -> None:
        self.noted.pop(key, None)  # the order is that of the last changes
        self._failed.pop(key, None)
        self.noted[key] = value

    def note_all(self, records: Records) -> None:
        for key, value in records.items():
            self.note(key, value)

    # -- writes

    def take(self, split: Callable[[Records], list[Records]]) -> tuple[int, list[Records]]:
        """The number of a write and its batches, as ``split`` makes them of the records to write now."""
        records, self.noted, self._failed = self.noted, {}, {}
        batches = split(records)
        self._number += 1
        self._in_progress[self._number] = len(batches)
        self._last_writes.update({key: (self._number, place) for place, key in enumerate(records)})
        return self._number, batches

    def finish(self, number: int, batch: Records, *, failed: bool) -> None:
        """Ends one batch. If it failed, its records are noted again, but not those that have been replaced since:
        writes may fail in any order, while a later one of the same key succeeds.
        """
        self._in_progress[number] -= 1
        if not self._in_progress[number]:
            del self._in_progress[number]
        again: Records = {}
        for key, value in batch.items():
            written = self._last_writes.get(key)
            if written is not None and written[0] == number:
                del self._last_writes[key]
                if failed and key not in self.noted:
                    again[key] = value
                    self._failed[key] = written
        if again:
            again.update(self.noted)
            places = self._failed
            self.noted = {key: again[key] for key in sorted(again, key=lambda one: places.get(one, _LAST))}

    # -- answers

    def wait(self, reply: PendingAnswer) -> None:
        """Lets an answer wait for all writes in progress."""
        self._waiting.append((self._number, reply))

    def waited_for(self, number: int) -> list[PendingAnswer]:
        """Takes out the answers that wait for this write."""
        return self._take_waiting(lambda last: last >= number)

    def ready(self) -> list[PendingAnswer]:
        """Takes out the answers whose writes are done."""
        oldest = min(self._in_progress, default=self._number + 1)
        return self._take_waiting(lambda last: last < oldest)

    def _take_waiting(self, is_wanted: Callable[[int], bool]) -> list[PendingAnswer]:
        taken = [reply for last, reply in self._waiting if is_wanted(last)]
        if taken:
            self._waiting = [(last, reply) for last, reply in self._waiting if not is_wanted(last)]
        return taken
