"""What all groups here hold together, and whether there is room for more: ``landline.group.max.bytes``.

Each group knows its weight, change by change; its cell tells the difference here. What is there already, or comes from
the log, is never refused, but counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from broker.utils.line_budget import LineBudget

_log = structlog.get_logger(__name__)
_MAX_NAME: Final = 256
# Asked before something is taken that weighs so much: whether there is room for it.
Admits = Callable[[int], bool]


def admits_all(_weight: int) -> bool:
    return True


class GroupMemory:
    """Thread-safe. ``held`` is the sum of what :meth:`change` was told. What several threads decide at once may pass
    ``most`` together, by one request each.
    """

    def __init__(self, most: int, lines: LineBudget) -> None:
        self._most = most
        self._lines = lines
        self._held = 0
        self._lock = threading.Lock()  # lock order 37

    @property
    def held(self) -> int:
        return self._held

    def change(self, difference: int) -> None:
        with self._lock:
            self._held += difference

    def admits(self, weight: int) -> bool:
        """Whether so much more fits. What weighs nothing always does."""
        return weight <= 0 or self._held + weight <= self._most

    def tell_refusal(self, group_id: str) -> None:
        """One line a second for the operator: something of ``group_id`` had no room. With no lock held."""
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
    """One request's look at the memory: what it was refused is told of when it is over, with no lock held."""

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
