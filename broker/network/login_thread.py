"""The thread on which SASL mechanisms do what may block, such as reading a key from a disk that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class LoginThread:
    """Runs work in the order of its arrival. Whoever submits it has one piece of work at a time for each
    connection, so ``landline.sasl.unauthenticated.max.count`` bounds the queue. Thread-safe.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="sasl-logins", daemon=True).start()

    def submit(self, work: Callable[[], None]) -> None:
        """Has ``work`` run, which raises nothing."""
        self._work.put(work)

    def stop(self) -> None:
        """Ends the thread after the work that waits. Does not wait for that: it may hang."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
