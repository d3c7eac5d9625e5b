"""Decides which old segments retention may delete; pure functions.

Reasons in Kafka's order: before the log start offset, older than ``retention.ms``, beyond
``retention.bytes``. The oldest segments go first, never past the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Reason(Enum):
    """Why segments are deleted, as logged."""

    LOG_START = "log_start_offset"
    TIME = "retention.ms"
    SIZE = "retention.bytes"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as retention sees it. ``end_offset``: the next one's base, or the log's end for the last."""

    end_offset: int
    size_bytes: int
    largest_timestamp: int
    active: bool


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """A topic's retention limits; -1 means no limit. ``by_policy``: whether cleanup.policy has ``delete``."""

    retention_ms: int
    retention_bytes: int
    by_policy: bool


_MayGo = Callable[[SegmentFacts, int], bool]


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    rules: RetentionRules,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> tuple[int, Reason] | None:
    """How many of the oldest segments to delete, and why; None if none."""
    behind = _leading(
        segments,
        high_watermark,
        lambda segment, _: not segment.active and segment.end_offset <= log_start_offset,
    )
    if behind:
        return behind, Reason.LOG_START
    if not rules.by_policy:
        return None
    if rules.retention_ms >= 0:
        old = _leading(
            segments,
            high_watermark,
            lambda segment, _: now_ms - segment.largest_timestamp > rules.retention_ms,
        )
        if old:
            return old, Reason.TIME
    if rules.retention_bytes >= 0:
        excess = sum(segment.size_bytes for segment in segments) - rules.retention_bytes
        too_much = _leading(
            segments, high_watermark, lambda segment, before: excess - before >= segment.size_bytes
        )
        if too_much:
            return too_much, Reason.SIZE
    return None


def _leading(segments: Sequence[SegmentFacts], high_watermark: int, may_go: _MayGo) -> int:
    count = size_before = 0
    for segment in segments:
        empty_active = segment.active and segment.size_bytes == 0
        if empty_active or segment.end_offset > high_watermark or not may_go(segment, size_before):
            break
        count += 1
        size_before += segment.size_bytes
    return count
