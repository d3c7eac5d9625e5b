"""The segments of a log, with no log around them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log_context import LogContext
from broker.log.log_segments import Segments
from broker.log.segments.segment import Segment
from broker.protocol.errors import KafkaError
from broker.record.batch import Record, build_batch
from tests.support.logs import TP, ManualClock

NOW_MS = 1_000_000


def batch_at(offset: int) -> memoryview:
    """Of ten records."""
    records = [Record(None, b"x" * 30, timestamp=NOW_MS) for _ in range(10)]
    return memoryview(build_batch(records, base_offset=offset, leader_epoch=0))


SIZE = len(batch_at(0))


@pytest.fixture
def context(tmp_path: Path) -> LogContext:
    (tmp_path / "t-0").mkdir()
    return LogContext(TP, tmp_path / "t-0", ManualClock(NOW_MS))


@pytest.fixture
def segments(context: LogContext) -> Segments:
    first = Segment.create(context.directory, 0, 1 << 20, NOW_MS)
    return Segments(context, [first], 0, LogConfig(segment_bytes=1000))


def appended(segments: Segments, end_offset: int, count: int = 1) -> int:
    """Appends batches of ten offsets, each to a segment of its own."""
    for number in range(count):
        if number or segments.active.size:
            segments.roll(end_offset)
        batch = (end_offset, end_offset + 9, SIZE, NOW_MS)
        end_offset = segments.append(batch_at(end_offset), [batch], end_offset, NOW_MS)
    return end_offset


def bases(segments: Segments) -> list[int]:
    return [segment.base_offset for segment in segments.all]


def names(context: LogContext, suffix: str) -> list[str]:
    return sorted(path.name for path in context.directory.glob(f"*{suffix}"))


def test_the_last_is_the_active_one_and_each_ends_where_the_next_begins(segments: Segments) -> None:
    assert appended(segments, 0, 3) == 30
    assert bases(segments) == [0, 10, 20]
    assert segments.active is segments.all[-1]
    assert [segment.limit for segment in segments.all[:-1]] == [10, 20]


def test_the_tail_tells_where_what_was_appended_last_begins_and_ends(segments: Segments) -> None:
    data = memoryview(bytes(batch_at(0)) + bytes(batch_at(10)))
    assert segments.append(data, [(0, 9, SIZE, NOW_MS), (10, 19, SIZE, NOW_MS)], 0, NOW_MS) == 20
    assert segments.tail == (segments.active, {0: 0, 10: SIZE, 20: 2 * SIZE})


def test_after_a_gap_the_tail_knows_nothing_of_the_old_end(segments: Segments) -> None:
    appended(segments, 0)
    segments.append(batch_at(15), [(15, 24, SIZE, NOW_MS)], 10, NOW_MS)
    assert segments.tail[1] == {0: 0, 15: SIZE, 25: 2 * SIZE}


def test_a_segment_that_has_no_room_or_is_too_old_has_to_be_followed_by_another(segments: Segments) -> None:
    batch, room = (10, 19, SIZE, NOW_MS), segments.config.segment_bytes - SIZE
    assert not segments.must_roll(2000, [batch], NOW_MS), "an empty one has to take what there is"
    appended(segments, 0)
    assert not segments.must_roll(room, [batch], NOW_MS)
    assert segments.must_roll(room + 1, [batch], NOW_MS)
    assert segments.must_roll(10, [(10, 1 << 31, 10, NOW_MS)], NOW_MS), (
        "its index has no room for that offset"
    )
    later = NOW_MS + segments.config.segment_ms + 1
    assert segments.must_roll(10, [(10, 19, 10, later)], later)


def test_a_write_that_fails_leaves_the_segment_as_it_was(
    segments: Segments, context: LogContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(segments, 0)
    real = os.pwrite

    def pwrite(fd: int, data: memoryview, position: int) -> int:
        real(fd, data[:7], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(KafkaError, match="append to"):
        segments.append(batch_at(10), [(10, 19, SIZE, NOW_MS)], 10, NOW_MS)
    assert segments.active.size == segments.active.path(".log").stat().st_size == SIZE
    assert segments.tail[1] == {0: 0, 10: SIZE}
    assert (context.errors, context.health.failure) == (1, None)


def test_the_generation_is_odd_while_segments_change_also_when_that_fails(segments: Segments) -> None:
    seen: list[int] = []

    def change() -> None:
        with segments.changing():
            seen.append(segments.generation)
            raise OSError("bad disk")

    with pytest.raises(OSError, match="disk"):
        change()
    assert (seen, segments.generation) == ([1], 2)


def test_a_truncation_keeps_what_lies_before_it(segments: Segments, context: LogContext) -> None:
    appended(segments, 0, 3)
    assert segments.truncate_to(15) == 10, "the batch that holds the offset goes"
    assert bases(segments) == [0, 10]
    assert segments.tail == (segments.active, {10: 0})
    assert names(context, ".log") == [f"{0:020d}.log", f"{10:020d}.log"]


def test_the_oldest_go_from_the_list_before_their_files_do(segments: Segments, context: LogContext) -> None:
    appended(segments, 0, 3)
    listed = segments.all
    with segments.changing():
        oldest = segments.drop_oldest(2)
    assert bases(segments) == [20]
    assert [segment.base_offset for segment in listed] == [0, 10, 20], "who reads has the list it began with"
    assert len(names(context, ".log")) == 3
    segments.discard(oldest)
    assert names(context, ".log") == [f"{20:020d}.log"]


def test_what_is_between_two_offsets_begins_with_the_segment_that_ends_there(segments: Segments) -> None:
    appended(segments, 0, 4)
    assert [segment.base_offset for segment in segments.between(20, 30, 40)] == [10, 20]


def test_a_segment_that_cannot_be_begun_leaves_no_file(
    segments: Segments, context: LogContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended(segments, 0)

    def create(directory: Path, base_offset: int, *_: object) -> Segment:
        (directory / f"{base_offset:020d}.index").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Segment, "create", create)
    with pytest.raises(KafkaError, match="begin a segment of"):
        segments.roll(10)
    assert bases(segments) == [0]
    assert not names(context, f"{10:020d}.index")
