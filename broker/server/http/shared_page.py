"""A page that is expensive to render, rendered at most once a second and shared by all clients.

With thousands of partitions, rendering /metrics or /status holds the interpreter's lock for a tenth of a
second or more, and HTTP clients cannot be trusted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from broker.utils.clock import SYSTEM_CLOCK, Clock

P = TypeVar("P")
LIFE_MS: Final = 1_000


class SharedPage(Generic[P]):
    """A page that many clients request. It is never older than a second and never rendered twice at the same
    time. ``render`` must not raise, so that an error page is shared too. The HttpEndpoint owns it.
    """

    def __init__(self, render: Callable[[], P], clock: Clock = SYSTEM_CLOCK) -> None:
        self._render = render
        self._clock = clock
        self._page: P | None = None
        self._made_ms = 0
        self._rendering = threading.Lock()  # lock order 16

    def get(self) -> P:
        """The page, at most a second old, counted from when it was ready. A client that comes during
        rendering waits for it.
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
