"""Waiting for sockets, without a kernel object for each wait."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Any


def select_ready(
    readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """As :func:`select.select`, for descriptors of any number. Raises ValueError for a socket that is closed.

    kazoo waits before each of its reads and writes, and makes and closes an epoll to do so, six system calls more.
    """
    poll = select.poll()
    for each in dict.fromkeys((*readers, *writers)):
        poll.register(each, select.POLLIN * (each in readers) | select.POLLOUT * (each in writers))
    found = dict(poll.poll(None if timeout_s is None else math.ceil(max(timeout_s, 0) * 1000)))
    # A hang-up or an error is for whoever asks: the read or the write tells of it.
    readable = [each for each in readers if found.get(each.fileno(), 0) & ~select.POLLOUT]
    writable = [each for each in writers if found.get(each.fileno(), 0) & ~select.POLLIN]
    return readable, writable, []
