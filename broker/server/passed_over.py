"""What old readers pass over: stretches of a log without a record, which may take longer to search than one request.

A reader before Fetch 4 asks again at the offset of its last message. It cannot be told to go on behind what has no
message for it: transaction markers, and batches that compaction has emptied. So the broker remembers from where it
has searched, and how far it has come.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from broker.log.log import Log

_MOST_ENTRIES: Final = 1_000
"""Each takes some 300 bytes. What is forgotten is searched again."""


class _Searched(NamedTuple):
    """There is no record before ``reached`` while this log has this generation."""

    log_serial: int
    generation: int
    reached: int


class PassedOver:
    """How far logs have been searched from which offset on.

    Used by one request at a time: those that convert records for old readers, as they compute for long.
    """

    def __init__(self) -> None:
        self._searched: OrderedDict[tuple[str, int, int], _Searched] = OrderedDict()

    def begin(self, log: Log, offset: int) -> int:
        """Where to read for a reader at ``offset``: there, or behind what has been searched."""
        known = self._searched.get((*log.topic_partition, offset))
        if known is None or known.log_serial != log.serial or known.generation != log.generation:
            return offset
        return known.reached

    def note(self, log: Log, offset: int, generation: int, reached: int) -> None:
        """There is no record from ``offset`` to before ``reached``. ``generation`` is that of before the search."""
        key = (*log.topic_partition, offset)
        self._searched.pop(key, None)
        if reached <= offset or generation % 2 or generation != log.generation:
            return  # nothing was passed over, or not in this log
        self._searched[key] = _Searched(log.serial, generation, reached)
        if len(self._searched) > _MOST_ENTRIES:
            self._searched.popitem(last=False)
