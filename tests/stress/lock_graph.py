"""Which lock was taken while which was held, and what is wrong with that, though nothing hung.

Locks count by name, not one by one: two threads need not meet for an inversion to be found, it is enough that
each order was seen once, anywhere. What was taken without waiting (``blocking=False``) can't hang and makes
no edge.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from tests.stress.traced import Held


class Edge(NamedTuple):
    """``taken`` was taken while ``held`` was."""

    held: str
    taken: str


class LockGraph:
    """Thread-safe. ``order`` is the written order: who holds a lock takes only those with higher numbers."""

    def __init__(self, order: Mapping[str, int] | None = None) -> None:
        self._order = order
        self.witnesses: dict[Edge, str] = {}
        self._after: dict[str, set[str]] = {}
        self.problems: list[str] = []
        self.taken: set[str] = set()
        self._lock = threading.Lock()

    def about_to_take(self, name: str, identity: int, held: list[Held]) -> None:
        """Notes that this thread, which holds ``held``, is going to wait for a lock."""
        if name not in self.taken:
            self._take_first(name)
        for one in held:
            edge = Edge(one.name, name)
            if edge not in self.witnesses:
                self._add(edge, one.identity == identity)

    def _take_first(self, name: str) -> None:
        self.taken.add(name)

    def _add(self, edge: Edge, is_same_lock: bool) -> None:
        stack = "".join(traceback.format_list(traceback.extract_stack()[:-3]))
        witness = (
            f"thread {threading.current_thread().name} took {edge.taken} while it held {edge.held}:\n{stack}"
        )
        with self._lock:
            if edge in self.witnesses:
                return
            way = self._way(edge.taken, edge.held)
            self.witnesses[edge] = witness
            self._after.setdefault(edge.held, set()).add(edge.taken)
            if is_same_lock:
                self.problems.append(f"a thread waits for itself: {witness}")
            elif way is not None:
                before = "".join(self.witnesses[Edge(a, b)] for a, b in pairwise(way))
                self.problems.append(f"inversion {' -> '.join([edge.held, *way])}\n{witness}{before}")
            if self._order is not None:
                self._check_order(edge, witness)

    def _check_order(self, edge: Edge, witness: str) -> None:
        assert self._order is not None
        missing = [name for name in edge if name not in self._order]
        if missing:
            self.problems.append(f"{missing[0]} is not in the written order; {witness}")
        elif self._order[edge.held] >= self._order[edge.taken]:
            numbers = f"{edge.held} ({self._order[edge.held]}), then {edge.taken} ({self._order[edge.taken]})"
            self.problems.append(f"against the written order: {numbers}\n{witness}")

    def _way(self, start: str, goal: str) -> list[str] | None:
        """The locks from ``start`` to ``goal`` along known edges, None when there is no way."""
        ways = [[start]]
        seen = {start}
        while ways:
            way = ways.pop(0)
            if way[-1] == goal:
                return way
            for name in self._after.get(way[-1], set()) - seen:
                seen.add(name)
                ways.append([*way, name])
        return None
