"""Wakes a network thread that waits for its epoll."""

from __future__ import annotations

import os
import select
from contextlib import suppress


class WakeUp:
    """An eventfd in a thread's epoll, by which other threads say that there is something in its queues.

    That thread makes, takes and closes it; any thread wakes. It is written once for each :meth:`take`.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        epoll.register(self.fd, select.EPOLLIN)

    def wake(self) -> None:
        """Makes the descriptor readable. The caller has queued its work before."""
        if not self._woken:
            self._woken = True
            with suppress(OSError):  # closed: the loop has ended
                os.eventfd_write(self.fd, 1)

    def take(self) -> None:
        """Called when the descriptor is readable, before the queues are read.

        The order matters. A waker that still sees True has already queued its work, and the queue is read
        after this. In the other order, its wake-up could be consumed while the flag stays set.
        """
        os.eventfd_read(self.fd)
        self._woken = False

    def close(self) -> None:
        """A later :meth:`wake` does nothing: the number may be another file's by then."""
        self._woken = True
        os.close(self.fd)
