"""The start-up as named, timed steps with undo actions: it can be cancelled at any step, and is undone in
reverse order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import structlog

_log = structlog.get_logger(__name__)


class StartupCancelled(Exception):
    """A stop was requested during start-up."""


class StartupError(Exception):
    """The broker cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A step and its duration."""

    step: str
    ms: float


class StepRecord(NamedTuple):
    """A finished step. ``kind`` is start or stop, ``outcome`` ok, failed or cancelled; times are
    on CLOCK_MONOTONIC.
    """

    kind: str
    step: str
    began_ns: int
    ended_ns: int
    outcome: str = "ok"
    detail: str = ""


class StartupSteps:
    """Owner of the list of undo actions. Used by the thread that starts, then by the one that stops.
    ``observe`` receives every finished step.
    """

    def __init__(
        self,
        cancel: threading.Event,
        tell: Callable[[str], None],
        observe: Callable[[StepRecord], None] = lambda _record: None,
    ) -> None:
        self._cancel = cancel
        self._tell = tell
        self._observe = observe
        self._undo: list[tuple[str, Callable[[], None]]] = []
        self.timings: list[StepTiming] = []
        self.began_ns = time.monotonic_ns()
        self.total_ms = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times the enclosed code. Raises :class:`StartupCancelled` before it begins if a
        stop was requested.
        """
        if self._cancel.is_set():
            raise StartupCancelled(name)
        self._tell(f"Starting: {name}")
        with self._observed("start", name) as began:
            yield
        self.timings.append(StepTiming(name, round((time.monotonic_ns() - began) / 1e6, 2)))

    @contextmanager
    def stop_step(self, name: str) -> Iterator[None]:
        """Records the enclosed code as a step of the stop."""
        with self._observed("stop", name):
            yield

    @contextmanager
    def _observed(self, kind: str, name: str) -> Iterator[int]:
        began = time.monotonic_ns()
        try:
            yield began
        except BaseException as error:
            outcome = "cancelled" if self._cancel.is_set() else "failed"
            self._observe(StepRecord(kind, name, began, time.monotonic_ns(), outcome, str(error)))
            raise
        self._observe(StepRecord(kind, name, began, time.monotonic_ns()))

    def undo_by(self, name: str, action: Callable[[], None]) -> None:
        """Registers ``action`` to run when the broker stops, in reverse order of registration."""
        self._undo.append((name, action))

    def finish(self) -> float:
        """Ends the start; stores and returns its duration in milliseconds."""
        self.total_ms = round((time.monotonic_ns() - self.began_ns) / 1e6, 1)
        return self.total_ms

    def undo_all(self) -> None:
        """Runs all undo actions in reverse order. A failure is logged and does not prevent the others."""
        while self._undo:
            name, action = self._undo.pop()
            self._tell(f"Stopping: {name}")
            try:
                with self.stop_step(name):
                    action()
            except Exception:
                _log.exception("stop_step_failed", step=name)
