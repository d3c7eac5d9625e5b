"""The memory that all groups on this broker use, and its limit ``landline.group.max.bytes``.

Each group keeps its weight up to date, and its cell reports the difference here. Existing data and data
loaded from the log count, but are never refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from broker.coordinator.common.memory import HeldMemory

_log = structlog.get_logger(__name__)
_MAX_NAME: Final = 256
# Called with a weight before something is accepted. Returns whether there is room for it.
Admits = Callable[[int], bool]


def admits_all(_weight: int) -> bool:
    return True


class GroupMemory(HeldMemory):
    """The memory of all groups."""

    def tell_refusal(self, group_id: str) -> None:
        """Logs that a request of ``group_id`` had no room, at most one line a second. Called with no
        lock held.
        """
        left_out = self._lines.left_out()
        if left_out is not None:
            _log.warning(
                "group_memory_full",
                group=group_id[:_MAX_NAME],
                held=self._held,
                most=self._most,
                left_out=left_out,
                setting="landline.group.max.bytes",
                do="find who makes so many groups, members or offsets (kafka-consumer-groups.sh --list), or raise it",
            )


class Admission:
    """One request's access to the memory. A refusal is logged when the request is over, with no lock held."""

    __slots__ = ("_group_id", "_memory", "_refused")

    def __init__(self, memory: GroupMemory, group_id: str) -> None:
        self._memory = memory
        self._group_id = group_id
        self._refused = False

    def __call__(self, weight: int) -> bool:
        if self._memory.admits(weight):
            return True
        self._refused = True
        return False

    def tell(self) -> None:
        if self._refused:
            self._memory.tell_refusal(self._group_id)
