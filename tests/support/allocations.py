"""Measures the memory of objects created in a block, by Python's allocator: the same on every machine."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def allocations() -> Iterator[Callable[[], int]]:
    """Yields a function that returns how many bytes are allocated now that were not at the beginning."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()

        def taken() -> int:
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before

        yield taken
    finally:
        tracemalloc.stop()
