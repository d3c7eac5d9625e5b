"""What ListOffsets 0 answers: where segments begin, by the times of their files. Later versions search for
records instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.log.log import Log
from broker.log.segments.batch_file import LOG_SUFFIX
from broker.log.segments.segment import Segment
from broker.protocol.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP


class Beginning(NamedTuple):
    """An offset that may be answered. ``changed_ms`` says when the file that begins there was last changed; None for a
    file that is gone.
    """

    offset: int
    changed_ms: Callable[[], int | None]


def offsets_before(log: Log, timestamp: int, most: int, now_ms: int) -> list[int]:
    """At most ``most`` offsets of a log, falling: those that :func:`chosen` chooses. Raises OSError."""
    segments = log.segments
    start = log.log_start_offset
    beginnings = [Beginning(max(each.base_offset, start), _changed(each)) for each in segments]
    if segments[-1].size:
        beginnings.append(Beginning(log.log_end_offset, lambda: now_ms))
    return chosen(beginnings, timestamp, most)


def _changed(segment: Segment) -> Callable[[], int | None]:
    def changed_ms() -> int | None:
        try:
            return segment.path(LOG_SUFFIX).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    return changed_ms


def chosen(beginnings: Sequence[Beginning], timestamp: int, most: int) -> list[int]:
    """The last of the ``beginnings`` whose file was changed at ``timestamp`` (ms) or before, and those before it.

    -1 chooses from the last one on, -2 the first one only. No file is looked at without need.
    """
    if timestamp == LATEST_TIMESTAMP:
        last = len(beginnings) - 1
    elif timestamp == EARLIEST_TIMESTAMP:
        last = 0
    else:
        last = -1 if timestamp < 0 else len(beginnings) - 1
        while last >= 0 and not _is_before(beginnings[last], timestamp):
            last -= 1
    first = max(0, last + 1 - most)
    return sorted((each.offset for each in beginnings[first : last + 1]), reverse=True)


def _is_before(beginning: Beginning, timestamp: int) -> bool:
    changed_ms = beginning.changed_ms()
    return changed_ms is not None and changed_ms <= timestamp


def visible(offsets: Sequence[int], high_watermark: int) -> list[int]:
    """The falling offsets as a consumer sees them: the high watermark stands for all that are above it."""
    below = [offset for offset in offsets if offset <= high_watermark]
    return below if len(below) == len(offsets) else [high_watermark, *below]
