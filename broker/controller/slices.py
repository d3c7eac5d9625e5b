"""Splits long work of the controller's thread into slices, so that other events run in between.

Such work is a generator. It yields where the next slice may wait, and returns the result of the whole.
Whatever it has read of the cluster before a yield may be outdated after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Term = TypeVar("Term")
Slices: TypeAlias = Generator[None, None, T]


def in_one(work: Callable[[Term], T], term: Term) -> Slices[T]:
    """Runs ``work`` as a single slice."""
    yield from ()
    return work(term)


def at_once(slices: Slices[T]) -> T:
    """Runs all slices without interruption and returns the result."""
    result: list[T] = []

    def run() -> Slices[None]:
        result.append((yield from slices))

    for _ in run():
        pass
    return result[0]
