"""The two ways to wait in a test: for a condition, and for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    timeout: float = 30.0,
    interval: float = 0.05,
    what: str | Callable[[], str] = "condition",
) -> T:
    """Polls ``condition`` until it is truthy and returns its value.

    ``timeout`` and ``interval`` are in seconds. An exception in the condition counts as "not yet". On a
    timeout, ``TimeoutError`` names ``what`` was waited for, with the last exception.
    """
    deadline = time.monotonic() + timeout
    last_error: Exception | None = None
    while True:
        try:
            if value := condition():
                return value
        except Exception as error:  # "not yet" may be any error of a client library
            last_error = error
        if time.monotonic() >= deadline:
            name = what() if callable(what) else what
            raise TimeoutError(f"{name} not true within {timeout} s") from last_error
        time.sleep(interval)


def last_for(seconds: float) -> None:
    """Lets a fault, or the time before an action, last this long. To wait for an effect, use a condition."""
    if seconds > 0:
        time.sleep(seconds)


async def last_for_async(seconds: float) -> None:
    """As :func:`last_for`, for a client's event loop: to keep a rate, or to pause before a client retries."""
    if seconds > 0:
        await asyncio.sleep(seconds)
