"""Waits for sockets without creating a kernel object for each wait."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Any


def select_ready(
    readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """Like :func:`select.select`, but for descriptors of any number. Raises ValueError for a closed socket.

    kazoo waits before each read and write. It would create and close an epoll object each time, which takes
    six more system calls.
    """
    poll = select.poll()
    for each in dict.fromkeys((*readers, *writers)):
        poll.register(each, select.POLLIN * (each in readers) | select.POLLOUT * (each in writers))
    found = dict(poll.poll(None if timeout_s is None else math.ceil(max(timeout_s, 0) * 1000)))
    # A hang-up or an error counts as ready: the following read or write reports it.
    readable = [each for each in readers if found.get(each.fileno(), 0) & ~select.POLLOUT]
    writable = [each for each in writers if found.get(each.fileno(), 0) & ~select.POLLIN]
    return readable, writable, []
