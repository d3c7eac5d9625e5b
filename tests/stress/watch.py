"""What went wrong, and who stands still: a thread that does not get on is a problem too, told with all stacks."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import structlog

from tests.stress.traced import held_here, last_taken

_MOST_PROBLEMS = 20
# A disk that is slow and shared makes one sync of many segments last for longer than nothing at all may.
_LONGEST_STEP = 10
# What the broker itself reports, and nothing here provokes.
_BAD_METHODS = ("error", "exception", "critical")
_BAD_EVENTS = frozenset({"checkpoint_write_failed", "leader_epochs_write_failed", "log_task_failed"})


class Watch:
    """Thread-safe. ``stop`` is set at the end and with the first problem."""

    def __init__(self, stall_s: float) -> None:
        self.stall_s = stall_s
        self.stop = threading.Event()
        self.problems: list[str] = []
        self._beats: dict[str, float] = {}
        self._crews: dict[str, Callable[[], Iterable[int]]] = {}
        self._expected: tuple[str, ...] = ()

    def problem(self, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(what)
        self.stop.set()

    def expect(self, *names: str) -> None:
        """From now on what the broker says of these directories or topics is no problem."""
        self._expected += names

    def _is_expected(self, text: str) -> bool:
        return any(name in text for name in self._expected)

    def holds_nothing(self, what: str) -> None:
        """``what`` is being given: its thread holds no lock of the broker."""
        if held := held_here():
            self.problem(
                f"{what} was given while {', '.join(held)} was held\n{''.join(traceback.format_stack())}"
            )

    def beat(self, name: str) -> None:
        """Who goes by that name gets on."""
        self._beats[name] = time.monotonic()

    def crew(self, name: str, idents: Callable[[], Iterable[int]]) -> None:
        """The threads that do what ``name`` does: it gets on while one of them does."""
        self._crews[name] = idents

    def run(
        self, name: str, step: Callable[[], None], until: threading.Event | None = None
    ) -> threading.Thread:
        """A thread that repeats ``step`` to the end, or ``until`` is set; any error of it is a problem."""
        over = until or self.stop

        def body() -> None:
            ident = threading.get_ident()
            self.crew(name, lambda: (ident,))
            try:
                while not over.is_set():
                    self.beat(name)
                    step()
            except BaseException as error:
                self.problem(f"{name}: {type(error).__name__}: {error}\n{_trace(error)}")
            finally:
                self._beats.pop(name, None)

        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread

    def stalled(self) -> list[str]:
        """Who neither began anything nor took a lock for ``stall_s``; or did one thing for ten times that."""
        now = time.monotonic()
        return [
            name
            for name, beat in list(self._beats.items())
            if now - max(beat, self._last_sign_of(name)) > self.stall_s
            or now - beat > _LONGEST_STEP * self.stall_s
        ]

    def _last_sign_of(self, name: str) -> float:
        idents = self._crews[name]() if name in self._crews else ()
        return max((last_taken.get(ident, 0) for ident in idents), default=0)

    def give_up(self, what: str) -> None:
        """For a problem that leaves threads hanging: all stacks on standard error."""
        self.problem(what)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)

    def hear_the_broker(self) -> None:
        """Errors in the broker's own log are problems."""

        def note(_logger: object, method: str, event: MutableMapping[str, Any]) -> Any:
            name, is_of_deleted = event.get("event"), "is closed" in str(event.get("error"))
            if not is_of_deleted and (method in _BAD_METHODS or name in _BAD_EVENTS):
                trace = _trace(error) if (error := sys.exc_info()[1]) else ""
                if self._is_expected(f"{event}{trace}"):
                    raise structlog.DropEvent
                self.problem(f"the broker says: {dict(event)}\n{trace}")
            raise structlog.DropEvent

        structlog.configure(processors=[note], cache_logger_on_first_use=False)


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
