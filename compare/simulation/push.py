"""When each of many pushes begins, by a master with so many hands. Pure."""

from __future__ import annotations

from heapq import heapreplace

import numpy as np

from compare.simulation.measured import Times


def begin_times(occupied_ms: Times, spacing_ms: Times, lanes: int) -> Times:
    """When each push begins, in order, ``lanes`` of them at a time; all in milliseconds from the first.

    A push waits for a free lane, and for its turn: ``spacing_ms`` after the turn before it. With one lane and no
    spacing the last one ends after the sum of ``occupied_ms``, with as many lanes as pushes after its maximum.
    """
    turns = np.cumsum(spacing_ms)
    if lanes >= len(occupied_ms):
        return turns
    if lanes == 1 and not spacing_ms.any():
        return np.cumsum(occupied_ms) - occupied_ms
    free = [0.0] * lanes
    begins = np.empty(len(occupied_ms))
    for number, (turn, occupied) in enumerate(zip(turns.tolist(), occupied_ms.tolist(), strict=True)):
        begin = max(turn, free[0])
        heapreplace(free, begin + occupied)
        begins[number] = begin
    return begins
