"""A Processor's guests: connections that are not a client's but are served by its loop, for example a
follower's fetches.
"""

from __future__ import annotations

import select
from collections import deque
from contextlib import suppress
from typing import Protocol


class Guest(Protocol):
    """A connection that is not a client's, served by a Processor's loop until it leaves.

    Its methods run on the Processor's thread and must neither raise nor block.
    """

    @property
    def waits_to_send(self) -> bool:
        """Whether the guest also waits for its socket to become writable; read after each ``on_ready``."""

    def fileno(self) -> int: ...

    def on_ready(self) -> bool:
        """The socket is readable or writable, or the peer is gone. False: the guest leaves."""

    def on_left(self) -> None:
        """The last call: the loop no longer watches the socket, because the guest left or the loop ended."""


class Guests:
    """The guests of one Processor. All runs on its thread, except appends to ``invited`` and, once the loop
    has ended, :meth:`see_off`.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self.visits: dict[int, Guest] = {}  # by file descriptor
        self.invited: deque[Guest] = deque()
        self._sending: set[int] = set()

    def let_in(self) -> None:
        while self.invited:
            guest = self.invited.popleft()
            fd = guest.fileno()
            try:
                self._epoll.register(fd, select.EPOLLIN)
            except (OSError, ValueError):  # closed before it was registered
                guest.on_left()
            else:
                self.visits[fd] = guest

    def serve(self, fd: int) -> None:
        guest = self.visits[fd]
        if not guest.on_ready():
            del self.visits[fd]
            self._sending.discard(fd)
            self._epoll.unregister(fd)
            guest.on_left()
        elif guest.waits_to_send != (fd in self._sending):
            self._sending ^= {fd}
            self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if guest.waits_to_send else 0))

    def see_off(self) -> None:
        """Makes all guests leave, including those invited too late. From any thread."""
        for guest in self.visits.values():
            guest.on_left()
        self.visits.clear()
        while self.invited:
            with suppress(IndexError):  # another thread was first
                self.invited.popleft().on_left()
