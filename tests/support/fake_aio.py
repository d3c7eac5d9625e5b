"""A stand-in for caio's ``linux_aio`` with its interface: syncs that are held, that fail, or that are refused."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class FakeOperation:
    """A sync of one descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.callback: Callable[[int], Any] = lambda _result: None

    @classmethod
    def fdsync(cls, fd: int, _priority: int = 0) -> FakeOperation:
        return cls(fd)

    def set_callback(self, callback: Callable[[int], Any]) -> bool:
        self.callback = callback
        return True


class FakeAio:
    """The module. ``error`` is the errno with which syncs end, or of the next one alone if ``fails_once``.
    ``refusal`` is what a submission raises, ``takes`` how many operations one takes at most. While ``is_held``, no
    sync ends. ``interruptions``: so many calls for results are interrupted by a signal, if there is none yet.
    """

    Operation = FakeOperation

    def __init__(self) -> None:
        self.error = 0
        self.fails_once = False
        self.refusal: Exception | None = None
        self.takes = 1 << 30
        self.is_held = False
        self.interruptions = 0
        self.submitted: list[int] = []
        self.ended_on: list[str] = []
        self._waiting: deque[FakeOperation] = deque()
        self.fileno = os.eventfd(0, os.EFD_NONBLOCK)

    def Context(self, _max_requests: int) -> FakeAio:  # noqa: N802 - its name in the library
        return self

    def submit(self, *operations: FakeOperation) -> int:
        if self.refusal is not None:
            raise self.refusal
        taken = operations[: self.takes]
        if taken:
            self.submitted.append(len(taken))
            self._waiting.extend(taken)
            if not self.is_held:
                os.eventfd_write(self.fileno, 1)
        return len(taken)

    def poll(self) -> int:
        return os.eventfd_read(self.fileno)

    def process_events(self, _max_requests: int = 512) -> int:
        if self.interruptions and (self.is_held or not self._waiting):
            self.interruptions -= 1
            raise SystemError(errno.EINTR, os.strerror(errno.EINTR))
        count = 0
        while self._waiting and not self.is_held:
            operation = self._waiting.popleft()
            error = self.error
            if not error:
                os.fdatasync(operation.fd)
            if self.fails_once:
                self.error = 0
            # Without a sign, as the library gives it.
            operation.callback((1 << 64) - error if error else 0)
            self.ended_on.append(threading.current_thread().name)
            count += 1
        return count

    def release(self) -> None:
        """Lets the syncs end that are held."""
        self.is_held = False
        os.eventfd_write(self.fileno, 1)
