"""Percentiles of measured times by the nearest rank, so that each is a measured value. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """The percentiles of times, in their own unit."""

    p50: float
    p99: float
    p999: float
    greatest: float
    count: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """The lowest of the ascending ``ordered`` that at least ``share`` (0 to 1) of them do not exceed."""
    if not ordered:
        raise ValueError("no percentile of nothing")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summarise(times: Sequence[float]) -> Times:
    """Percentiles of ``times``, in any order."""
    ordered = sorted(times)
    return Times(
        percentile(ordered, 0.5),
        percentile(ordered, 0.99),
        percentile(ordered, 0.999),
        percentile(ordered, 1.0),
        len(ordered),
    )
