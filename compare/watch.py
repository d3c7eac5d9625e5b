"""Watches which members serve: a thread per question asks repeatedly, and every change is recorded with
its time.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compare.events import now_us
from compare.settings import PROBE_TIMEOUT_S

Look = Callable[[], set[str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question: which of these members serve? Asked every ``every_s`` seconds."""

    names: tuple[str, ...]
    look: Look
    every_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """A member began or ceased to serve; microseconds since 1970."""

    at_us: int
    serves: bool


class Sightings:
    """The observed changes of each member. Written by the watch's threads, read by the run's, under
    one lock.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._changes: dict[str, list[Change]] = {name: [] for name in names}
        self._lock = threading.Lock()

    def note(self, name: str, at_us: int, serves: bool) -> None:
        """Records a change, if it is one."""
        with self._lock:
            changes = self._changes[name]
            if serves != (changes[-1].serves if changes else False):
                changes.append(Change(at_us, serves))

    def serves(self, name: str) -> bool:
        """Whether the member serves now."""
        return self.since(name) is not None

    def since(self, name: str) -> int | None:
        """Since when the member serves without interruption; None: it does not."""
        with self._lock:
            changes = self._changes[name]
            return changes[-1].at_us if changes and changes[-1].serves else None

    def all_since(self, names: Iterable[str]) -> int | None:
        """Since when all of them serve; None: not all do."""
        times = [self.since(name) for name in names]
        return None if not times or None in times else max(time for time in times if time is not None)

    def first(self, names: Iterable[str]) -> int | None:
        """When the first of them served."""
        times = [change.at_us for name in names for change in self.changes(name) if change.serves]
        return min(times, default=None)

    def next_after(self, name: str, at_us: int) -> int | None:
        """When the member first began to serve after ``at_us``."""
        return next((c.at_us for c in self.changes(name) if c.serves and c.at_us >= at_us), None)

    def ceased_after(self, name: str, at_us: int) -> bool:
        """Whether the member ceased to serve after ``at_us``."""
        return any(not c.serves and c.at_us >= at_us for c in self.changes(name))

    def changes(self, name: str) -> list[Change]:
        """All changes, oldest first."""
        with self._lock:
            return list(self._changes[name])


class Watch:
    """A watch over members, which asks until it is stopped. Its threads are in the network namespace of the
    thread that starts it.
    """

    def __init__(self, questions: Iterable[Question]) -> None:
        asked = list(questions)
        self.seen = Sightings(name for question in asked for name in question.names)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._ask, args=(question,), name=f"watch-{question.names[0]}", daemon=True
            )
            for question in asked
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when all threads have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, question: Question) -> None:
        while not self._stop.wait(question.every_s):
            serving = question.look()
            at_us = now_us()
            for name in question.names:
                self.seen.note(name, at_us, name in serving)


def http_ready(name: str, address: str, port: int) -> Look:
    """Whether ``/readyz`` reports the member as ready."""

    def look() -> set[str]:
        connection = http.client.HTTPConnection(address, port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/readyz")
            return {name} if connection.getresponse().status == 200 else set()
        except (OSError, http.client.HTTPException):
            return set()
        finally:
            connection.close()

    return look
