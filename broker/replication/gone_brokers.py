"""Brokers at whose port nobody listens any more: a follower knows of a crashed leader before the controller says so.

A client that lost its leader asks for metadata at once, and when it is told of the dead one again it asks a second
later (librdkafka). So for a moment the answer is better given after the controller's word than before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from broker.utils.clock import Clock

WAIT_MS: Final = 1_500


class GoneBrokers:
    """Thread-safe. ``alive`` says whom the metadata counts among the living."""

    def __init__(self, clock: Clock, alive: Callable[[int], bool]) -> None:
        self._clock = clock
        self._alive = alive
        self._lock = threading.Lock()  # lock order 71
        self._since: dict[int, int] = {}

    def note(self, broker_id: int) -> None:
        """A connection to it was refused: its process has ended."""
        with self._lock:
            self._since.setdefault(broker_id, self._clock.monotonic_ms())

    def forget(self, broker_id: int) -> None:
        """It answers again."""
        if self._since:
            with self._lock:
                self._since.pop(broker_id, None)

    def is_word_awaited(self) -> bool:
        """Whether the controller is about to tell of one of them: not for longer than ``WAIT_MS`` after it was noted,
        and not again before it has answered.
        """
        if not self._since:
            return False
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for broker_id in [each for each in self._since if not self._alive(each)]:
                del self._since[broker_id]
            return any(now_ms - since < WAIT_MS for since in self._since.values())
