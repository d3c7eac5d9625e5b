"""Runs checks in parallel until a deadline. A check that hangs, on a name server or on a disk, costs
only its own answer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def run_all(checks: Mapping[K, Callable[[], T]], deadline_s: float) -> dict[K, T | BaseException | None]:
    """The result of each check, the exception that it raised, or None if it was not done at ``deadline_s`` of the
    monotonic clock. Threads of late checks are abandoned.
    """
    done: queue.SimpleQueue[tuple[K, T | BaseException]] = queue.SimpleQueue()

    def run(key: K, check: Callable[[], T]) -> None:
        try:
            done.put((key, check()))
        except BaseException as error:
            done.put((key, error))

    for key, check in checks.items():
        threading.Thread(target=run, args=(key, check), name=f"doctor-{key}", daemon=True).start()
    results: dict[K, T | BaseException | None] = dict.fromkeys(checks)
    for _ in checks:
        try:
            key, result = done.get(timeout=max(deadline_s - time.monotonic(), 0.001))
        except queue.Empty:
            break
        results[key] = result
    return results
