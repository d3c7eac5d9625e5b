"""Work of the controller's thread that is done in slices, so that other events have their turn in between.

A generator that yields where the next slice may wait, and returns what became of the whole. What it has read of the
cluster before a yield may be of the past after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Term = TypeVar("Term")
Slices: TypeAlias = Generator[None, None, T]


def in_one(work: Callable[[Term], T], term: Term) -> Slices[T]:
    """Work that is not to be interrupted."""
    yield from ()
    return work(term)


def at_once(slices: Slices[T]) -> T:
    """All slices, one after the other."""
    result: list[T] = []

    def run() -> Slices[None]:
        result.append((yield from slices))

    for _ in run():
        pass
    return result[0]
