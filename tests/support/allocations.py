"""How much memory what is made in a block takes, as Python's allocator counts it: the same on every machine."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def allocations() -> Iterator[Callable[[], int]]:
    """Gives what tells how many bytes are held now that were not at the beginning."""
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
