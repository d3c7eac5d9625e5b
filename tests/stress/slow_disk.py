"""A disk that takes its time now and then, so that threads meet in the middle of what it does."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rig.wait import last_for
from tests.stress.traced import last_taken

_SLOW_CALLS = ("fsync", "fdatasync", "replace", "rename")
_QUICKEST_S, _SLOWEST_S = 0.002, 0.3
_HOW_OFTEN = 0.2


@contextmanager
def slow_disk(seed: int) -> Iterator[None]:
    """Has calls of ``os`` that wait for the disk wait a little more; which ones, ``seed`` says."""
    chance = random.Random(f"{seed} disk")
    real = {name: getattr(os, name) for name in _SLOW_CALLS}

    def slow(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if chance.random() < _HOW_OFTEN:
                last_for(min(_QUICKEST_S / (1 - chance.random()), _SLOWEST_S))  # most are short, a few long
            done = call(*arguments, **options)
            last_taken[threading.get_ident()] = (
                time.monotonic()
            )  # a disk that is busy lets its callers get on
            return done

        return called

    for name, call in real.items():
        setattr(os, name, slow(call))
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(os, name, call)
