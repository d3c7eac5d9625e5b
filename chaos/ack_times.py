"""Times of acknowledgements, stored as bursts instead of moments, and the longest gap between them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

Partition = tuple[str, int]
Burst = tuple[Partition, float, float]
"""A partition, and the times of the first and the last acknowledgement of a burst."""

RESOLUTION_S = 0.02
"""Acknowledgements of a partition that are closer together are one burst: shorter gaps are not reported."""


def bursts_of(moments: Iterable[tuple[Partition, float]]) -> list[Burst]:
    """The bursts of acknowledgements that are given in order of time; in each partition ordered by
    their starts.
    """
    times = AckTimes()
    times.add((partition, moment, moment) for partition, moment in moments)
    return times.bursts()


class AckTimes:
    """Bursts by partition, added in order of time."""

    def __init__(self) -> None:
        self._starts: dict[Partition, list[float]] = defaultdict(list)
        self._ends: dict[Partition, list[float]] = defaultdict(list)

    def add(self, bursts: Iterable[Burst]) -> None:
        """Appends bursts that are later than all before, except for other clients' acknowledgements at about
        the same time.
        """
        for partition, start, end in bursts:
            starts, ends = self._starts[partition], self._ends[partition]
            if ends and start - ends[-1] <= RESOLUTION_S:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)

    def bursts(self) -> list[Burst]:
        """All bursts, partition by partition."""
        return [
            (partition, start, end)
            for partition, starts in self._starts.items()
            for start, end in zip(starts, self._ends[partition], strict=True)
        ]

    def longest_gap_s(self, since: float, until: float) -> float:
        """The longest time in the window, in seconds, in which no partition acknowledged anything."""
        spans = [span for partition in self._starts for span in self._spans(partition, since, until)]
        return _longest_gap(sorted(spans), since, until)

    def gaps_s(self, since: float, until: float) -> dict[Partition, float]:
        """The longest gap of each partition, in seconds. It shows a partition's outage that the activity of
        others would hide.
        """
        return {
            partition: _longest_gap(self._spans(partition, since, until), since, until)
            for partition in sorted(self._starts)
        }

    def quiet_since(self, moment: float) -> list[Partition]:
        """The partitions that acknowledged nothing after ``moment``."""
        return [partition for partition, ends in sorted(self._ends.items()) if ends[-1] <= moment]

    def _spans(self, partition: Partition, since: float, until: float) -> list[tuple[float, float]]:
        starts, ends = self._starts[partition], self._ends[partition]
        first, last = bisect_left(ends, since), bisect_left(starts, until)
        return list(zip(starts[first:last], ends[first:last], strict=True))


def _longest_gap(spans: Sequence[tuple[float, float]], since: float, until: float) -> float:
    longest, quiet_from = 0.0, since
    for start, end in spans:
        longest = max(longest, start - quiet_from)
        quiet_from = max(quiet_from, end)
    return max(longest, until - quiet_from, 0.0)
