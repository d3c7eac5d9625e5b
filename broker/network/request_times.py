"""Request durations, from the last byte received to the response passed to the socket. Kafka's TotalTimeMs.

Each Processor counts its own, without a lock. A shift and a bit length select the bucket; buckets double from
an eighth of a millisecond to four seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_SHIFT: Final = 17
_BUCKETS: Final = 17
BOUNDS_MS: Final = tuple((1 << (_SHIFT + place)) / 1e6 for place in range(_BUCKETS - 1))


class RequestTimes:
    """One Processor's counts by API key: a cell per bucket, the last one for anything longer, and the sum
    in ns.
    """

    __slots__ = ("_by_api",)

    def __init__(self) -> None:
        self._by_api: dict[int, list[int]] = {}

    def record(self, api_key: int, elapsed_ns: int) -> None:
        cells = self._by_api.get(api_key)
        if cells is None:
            cells = self._by_api[api_key] = [0] * (_BUCKETS + 1)
        place = (elapsed_ns >> _SHIFT).bit_length()
        cells[place if place < _BUCKETS else _BUCKETS - 1] += 1
        cells[_BUCKETS] += elapsed_ns

    def cells(self) -> Mapping[int, list[int]]:
        return dict(self._by_api)


def total_times(processors: Iterable[RequestTimes]) -> dict[int, tuple[list[tuple[str, float]], float]]:
    """By API key: cumulative counts by upper bound in milliseconds, the last ``+Inf``, and the sum
    in milliseconds.
    """
    sums: dict[int, list[int]] = {}
    for times in processors:
        for api_key, cells in times.cells().items():
            known = sums.get(api_key)
            sums[api_key] = cells[:] if known is None else [a + b for a, b in zip(known, cells, strict=True)]
    return {api_key: _histogram(cells) for api_key, cells in sums.items()}


def _histogram(cells: list[int]) -> tuple[list[tuple[str, float]], float]:
    cumulative: list[tuple[str, float]] = []
    running = 0
    for bound, count in zip(
        [*(f"{bound:.6g}" for bound in BOUNDS_MS), "+Inf"], cells[:_BUCKETS], strict=True
    ):
        running += count
        cumulative.append((bound, running))
    return cumulative, cells[_BUCKETS] / 1e6
