"""A Processor's guests: connections that are not a client's, served by its loop, as a follower's fetches are."""

from __future__ import annotations

import select
from collections import deque
from contextlib import suppress
from typing import Protocol


class Guest(Protocol):
    """A connection that is not a client's, served by a Processor's loop as long as it wants to be.

    Its methods run on the Processor's thread, must not raise and must not block.
    """

    @property
    def waits_to_send(self) -> bool:
        """Whether room in its socket is news too; asked after each ``on_ready``."""

    def fileno(self) -> int: ...

    def on_ready(self) -> bool:
        """Something can be read, or sent, or the peer is gone. False: the guest wants to leave."""

    def on_left(self) -> None:
        """Its socket is the loop's no more: it wanted to leave, or the loop has ended. The last call."""


class Guests:
    """Those of one Processor. Everything but appends to ``invited``, and :meth:`see_off` once the loop has ended, is on
    its thread.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self.visits: dict[int, Guest] = {}  # by descriptor: who is here
        self.invited: deque[Guest] = deque()
        self._sending: set[int] = set()

    def let_in(self) -> None:
        while self.invited:
            guest = self.invited.popleft()
            fd = guest.fileno()
            try:
                self._epoll.register(fd, select.EPOLLIN)
            except (OSError, ValueError):  # closed before it came in
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
        """All leave; who was invited too late too. From any thread."""
        for guest in self.visits.values():
            guest.on_left()
        self.visits.clear()
        while self.invited:
            with suppress(IndexError):  # another thread was first
                self.invited.popleft().on_left()
