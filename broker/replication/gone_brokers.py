"""Brokers whose port refuses connections: a follower notices a crashed leader before the controller does.

A client that lost its leader requests metadata at once. If the answer still names the dead leader, the
client asks again only a second later (librdkafka). So it is better to delay the answer until the
controller's update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from broker.utils.clock import Clock

WAIT_MS: Final = 1_500


class GoneBrokers:
    """Brokers that refused a connection. Thread-safe. ``alive`` says whether the metadata lists a broker."""

    def __init__(self, clock: Clock, alive: Callable[[int], bool]) -> None:
        self._clock = clock
        self._alive = alive
        self._lock = threading.Lock()  # lock order 71
        self._since: dict[int, int] = {}

    def note(self, broker_id: int) -> None:
        """Notes that the broker refused a connection: its process has ended."""
        with self._lock:
            self._since.setdefault(broker_id, self._clock.monotonic_ms())

    def forget(self, broker_id: int) -> None:
        """Notes that the broker answers again."""
        if self._since:
            with self._lock:
                self._since.pop(broker_id, None)

    def is_word_awaited(self) -> bool:
        """Whether an update from the controller about one of them is expected: for at most ``WAIT_MS`` after
        it was noted, and not again before the broker has answered.
        """
        if not self._since:
            return False
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for broker_id in [each for each in self._since if not self._alive(each)]:
                del self._since[broker_id]
            return any(now_ms - since < WAIT_MS for since in self._since.values())
