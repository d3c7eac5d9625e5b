"""A question that may take long, asked on a thread of its own, for pages that must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import structlog

from broker.utils.clock import SYSTEM_CLOCK, Clock

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Aside(Generic[T]):
    """One question, asked again and again, never twice at the same time. Owns the thread that asks, which ends with the
    answer. Its callers take turns, as those that render a page do.

    ``ask`` returns None for no answer. ``name`` is the thread's.
    """

    def __init__(self, name: str, ask: Callable[[], T | None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._name: Final = name
        self._ask = ask
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._latest: tuple[T, int] | None = None

    def begin(self, wait_s: float = 0.0) -> None:
        """Asks, unless the last time has not ended yet, and waits for the end, but not longer than ``wait_s``."""
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the host has no thread left: the next time may find one
            _log.warning("not_asked", what=self._name, error=str(error))
            return
        self._thread = thread
        if wait_s > 0:
            thread.join(wait_s)

    def answer(self, most_ms: int) -> T | None:
        """The last answer; None if the last time had none, or if it is older than that."""
        latest = self._latest
        if latest is None or self._clock.monotonic_ms() - latest[1] > most_ms:
            return None
        return latest[0]

    def _run(self) -> None:
        found = None
        try:
            found = self._ask()
        except Exception:  # the next time may work
            _log.exception("asking_failed", what=self._name)
        self._latest = None if found is None else (found, self._clock.monotonic_ms())
