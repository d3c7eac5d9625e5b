"""What is durable of segments, with no log around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import durability as durability_module
from broker.log.durability import Durability
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_segments import Segments
from broker.log.segments.segment import Segment
from broker.protocol.errors import KafkaError
from broker.record.batch import Record, build_batch
from tests.support.logs import TP, ManualClock

CLOCK = ManualClock()


class Parts:
    """Three segments of ten offsets each, and how durable they are."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.context = LogContext(TP, directory, CLOCK)
        self.offsets = LogOffsets(0, 0)
        first = Segment.create(directory, 0, 1 << 20, 0)
        self.segments = Segments(self.context, [first], 0, LogConfig())
        for number in range(3):
            if number:
                self.segments.roll(self.offsets.end)
            begin = number * 10
            records = [Record(None, b"x", timestamp=1_000) for _ in range(10)]
            data = memoryview(build_batch(records, base_offset=begin, leader_epoch=0))
            batch = (begin, begin + 9, len(data), 1_000)
            self.offsets.end = self.segments.append(data, [batch], begin, CLOCK.wall_ms())
        epochs = LeaderEpochCache(directory, has_file=False)
        self.durability = Durability(self.context, self.offsets, self.segments, epochs, 0, dir_is_new=True)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path / "t-0")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is synced: base offsets of segments, and paths of directories."""
    done: list[object] = []
    sync, sync_dir = Segment.sync, durability_module.sync_dir
    monkeypatch.setattr(Segment, "sync", lambda segment: (done.append(segment.base_offset), sync(segment)))
    monkeypatch.setattr(
        durability_module, "sync_dir", lambda directory: (done.append(directory), sync_dir(directory))
    )
    return done


def test_a_flush_syncs_the_new_directorys_name_then_segment_by_segment_from_the_oldest(
    parts: Parts, synced: list[object]
) -> None:
    parts.durability.flush()
    assert synced == [parts.context.directory.parent, 0, 10, 20]
    assert parts.durability.recovery_point == 30


def test_a_flush_syncs_no_further_than_asked_and_nothing_twice(parts: Parts, synced: list[object]) -> None:
    parts.durability.flush(10)
    assert (synced[1:], parts.durability.recovery_point) == ([0], 10)
    del synced[:]
    parts.durability.flush(20)
    parts.durability.flush(15)
    assert (synced, parts.durability.recovery_point) == ([0, 10], 20), (
        "one that ends at the point is looked at again"
    )


def test_a_flush_does_not_go_past_the_end_that_a_truncation_left(parts: Parts) -> None:
    with parts.segments.changing():
        parts.offsets.end = parts.segments.truncate_to(20)
    parts.durability.note_truncated()
    parts.durability.flush(30)
    assert parts.durability.recovery_point == 20


def test_names_are_synced_before_anything_else_after_a_truncation_and_once(
    parts: Parts, synced: list[object]
) -> None:
    parts.durability.flush()
    parts.durability.recovery_point = 0
    parts.durability.note_truncated()
    del synced[:]
    parts.durability.flush()
    assert synced == [parts.context.directory, 0, 10, 20]


def test_a_sync_is_wanted_once_enough_was_appended_and_no_further_than_the_end(parts: Parts) -> None:
    durability = parts.durability
    durability.note_appended(9, flush_messages=10)
    assert durability.sync_wanted == 0
    durability.note_appended(30, flush_messages=10)
    assert durability.sync_wanted == 30
    parts.offsets.end = 25
    durability.note_truncated()
    assert durability.sync_wanted == 25


def test_of_a_closed_log_nothing_is_synced(parts: Parts, synced: list[object]) -> None:
    parts.context.is_closed = True
    with pytest.raises(KafkaError, match="closed"):
        parts.durability.flush()
    assert (synced, parts.durability.recovery_point) == ([], 0)
