"""Computes when each of many pushes begins, for a master with a number of lanes. Pure."""

from __future__ import annotations

from heapq import heapreplace

import numpy as np

from compare.simulation.measured import Times


def begin_times(occupied_ms: Times, spacing_ms: Times, lanes: int) -> Times:
    """When each push begins, with ``lanes`` of them at a time; in milliseconds from the first push.

    The last axis has the pushes in order; other axes are separate starts.

    A push waits for a free lane, and for its turn: ``spacing_ms`` after the previous turn. With one lane
    and no spacing the last push ends after the sum of ``occupied_ms``, with as many lanes as pushes after
    its maximum.
    """
    if lanes >= occupied_ms.shape[-1]:
        return np.cumsum(spacing_ms, axis=-1)
    if lanes == 1 and not spacing_ms.any():
        return np.cumsum(occupied_ms, axis=-1) - occupied_ms
    starts = zip(np.atleast_2d(occupied_ms), np.atleast_2d(spacing_ms), strict=True)
    return np.array([_in_lanes(*start, lanes) for start in starts]).reshape(occupied_ms.shape)


def _in_lanes(occupied_ms: Times, spacing_ms: Times, lanes: int) -> list[float]:
    free = [0.0] * lanes
    begins = []
    for turn, occupied in zip(np.cumsum(spacing_ms).tolist(), occupied_ms.tolist(), strict=True):
        begin = max(turn, free[0])
        heapreplace(free, begin + occupied)
        begins.append(begin)
    return begins
