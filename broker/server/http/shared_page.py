"""A page that costs much, made at most once a second: whoever asks gets what was made for the last one.

With thousands of partitions /metrics and /status are made for a tenth of a second or more, with the interpreter's lock,
and nobody who asks over HTTP need be a friend.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from broker.utils.clock import SYSTEM_CLOCK, Clock

P = TypeVar("P")
LIFE_MS: Final = 1_000


class SharedPage(Generic[P]):
    """A page that many ask for and one makes. It is never older than a second, and never made twice at once.
    ``render`` makes it and must not raise, so that a page that fails is shared as well. The HttpEndpoint owns
    it.
    """

    def __init__(self, render: Callable[[], P], clock: Clock = SYSTEM_CLOCK) -> None:
        self._render = render
        self._clock = clock
        self._page: P | None = None
        self._made_ms = 0
        self._rendering = threading.Lock()  # lock order 16

    def get(self) -> P:
        """The page: as it was a second ago at most, counted from when it was ready. Who comes while it is made waits
        for it.
        """
        page = self._fresh()
        if page is not None:
            return page
        with self._rendering:
            page = self._fresh()
            if page is None:
                page = self._render()
                self._made_ms = self._clock.monotonic_ms()
                self._page = page
            return page

    def _fresh(self) -> P | None:
        page = self._page
        return page if self._clock.monotonic_ms() - self._made_ms < LIFE_MS else None
