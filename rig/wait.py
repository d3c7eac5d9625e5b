"""The two ways a test passes time: waiting for a condition, and letting a state last."""

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

    ``timeout`` and ``interval`` are seconds. An exception raised by the condition counts as "not yet" and is
    shown if time runs out; then ``TimeoutError`` names ``what`` was waited for.
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
    """Lets a fault, or a start that is to be hit, last so long. Not a wait for its effects: they are a condition."""
    if seconds > 0:
        time.sleep(seconds)


async def last_for_async(seconds: float) -> None:
    """As :func:`last_for`, for a client's event loop: a rate to keep, or a pause before a client tries again."""
    if seconds > 0:
        await asyncio.sleep(seconds)
