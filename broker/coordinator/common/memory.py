"""The memory that a coordinator uses for what clients store in it, and its limit."""

from __future__ import annotations

import threading

from broker.utils.line_budget import LineBudget


class HeldMemory:
    """The memory of a coordinator's objects. Thread-safe. ``held`` is the sum of the differences passed to
    :meth:`change`. Threads that decide at the same time may exceed ``most``, by one request each.
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
        """Whether ``weight`` more bytes fit. No growth always fits."""
        return weight <= 0 or self._held + weight <= self._most
