"""LogReader alone, without a Log around it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.log_reader import LogReader
from broker.log.results import AbortedTransaction, LogRead, TimestampOffset
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import MAX_TIMESTAMP
from broker.record.batch import Record, build_batch, iter_batches
from tests.support.log_parts import LogParts

LARGE = 1 << 20


def ten_at(offset: int, *, log_append_time_ms: int | None = None) -> bytes:
    """A batch of ten records. The timestamp of each is 1000 plus its offset."""
    records = [Record(None, b"x", timestamp=1_000 + offset + n) for n in range(10)]
    return build_batch(records, base_offset=offset, leader_epoch=3, log_append_time_ms=log_append_time_ms)


SIZE = len(ten_at(0))


class CountedLock:
    """A reentrant lock that counts how often it was taken."""

    def __init__(self) -> None:
        self.taken = 0
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self.taken += 1
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


class Read(LogParts):
    """Three segments of batches with ten records each, at offsets 0 and 10, 20, 35 and 50."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, LogConfig(index_interval_bytes=1))
        self.context.lock = self.lock = CountedLock()
        self.reader = LogReader(self.context, self.offsets, self.segments, self.producers)
        for offset, roll in ((0, False), (10, False), (20, True)):
            self.put(ten_at(offset), roll=roll)
        self.segments.roll(35)
        self.put(ten_at(35))
        self.put(ten_at(50))

    def read(
        self, offset: int, max_bytes: int = LARGE, *, end_offset: int = 99, min_one_batch: bool = True
    ) -> LogRead:
        return self.reader.read(offset, max_bytes, end_offset=end_offset, min_one_batch=min_one_batch)


@pytest.fixture
def parts(tmp_path: Path) -> Read:
    return Read(tmp_path / "t-0")


def code_of(action, *args, **kwargs) -> Errors:
    with pytest.raises(KafkaError) as raised:
        action(*args, **kwargs)
    return raised.value.error_code


def place(found: LogRead) -> tuple[int, int, int] | None:
    """Base offset, file position and size; None for nothing."""
    return None if found.region is None else (found.base_offset, found.region.position, found.region.size)


# --- borders


def test_a_log_that_starts_within_a_batch_is_read_from_that_batch_on(parts: Read) -> None:
    parts.offsets.start = 15
    assert code_of(parts.read, 14) is Errors.OFFSET_OUT_OF_RANGE
    assert place(parts.read(15)) == (10, SIZE, SIZE)


@pytest.mark.parametrize("offset", [50, 55, 59])
def test_a_read_between_high_watermark_and_end_is_empty_and_one_past_the_end_is_refused(
    parts: Read, offset: int
) -> None:
    for high_watermark in (45, 50):
        assert parts.read(offset, end_offset=high_watermark) == LogRead(None, offset, 0)
    assert parts.read(60) == LogRead(None, 60, 0)
    assert code_of(parts.read, 61) is Errors.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("end_offset", [20, 21, 35, 99])
def test_a_read_ends_with_its_segment_wherever_the_bound_is(parts: Read, end_offset: int) -> None:
    assert place(parts.read(0, end_offset=end_offset)) == (0, 0, 2 * SIZE)


@pytest.mark.parametrize(
    ("offset", "following"), [(30, (35, 0, 2 * SIZE)), (34, (35, 0, 2 * SIZE)), (45, (50, SIZE, SIZE))]
)
def test_a_read_from_a_gap_begins_with_the_next_batch(
    parts: Read, offset: int, following: tuple[int, int, int]
) -> None:
    assert place(parts.read(offset)) == following
    assert parts.read(offset, end_offset=following[0]) == LogRead(None, offset, 0)


@pytest.mark.parametrize("offset", [0, 10, 35, 50])
def test_less_than_no_bytes_are_refused_unless_there_is_nothing_to_read(parts: Read, offset: int) -> None:
    assert code_of(parts.read, offset, -1) is Errors.INVALID_REQUEST
    assert parts.read(offset, -1, end_offset=offset) == LogRead(None, offset, 0)
    assert place(parts.read(offset, 0)) is not None


def test_read_bytes_gives_whole_batches_and_at_least_one(parts: Read) -> None:
    for max_bytes, offsets in ((1, [0]), (2 * SIZE - 1, [0]), (2 * SIZE, [0, 10])):
        data = parts.reader.read_bytes(0, max_bytes, 60)
        assert [header.base_offset for header in iter_batches(data)] == offsets
        assert len(data) == len(offsets) * SIZE
    assert len(parts.reader.read_bytes(60, LARGE, 60)) == 0


def test_read_bytes_of_a_file_that_was_cut_from_outside_is_an_error_and_not_empty(parts: Read) -> None:
    """Callers read until the result is empty, and would miss the rest of the log."""
    os.truncate(parts.segments.active.path(".log"), SIZE - 1)
    assert code_of(parts.reader.read_bytes, 35, LARGE, 60) is Errors.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("offset", "where"),
    [
        (0, (0, 0)),
        (19, (0, SIZE)),
        (20, (20, 0)),
        (34, (20, SIZE)),
        (35, (35, 0)),
        (47, (35, SIZE)),
        (60, (35, 2 * SIZE)),
    ],
)
def test_the_place_of_an_offset_is_that_of_its_batch_or_the_end_of_the_one_before(
    parts: Read, offset: int, where: tuple[int, int]
) -> None:
    assert parts.reader.place_of(offset) == where


# --- beside truncation and retention


def test_a_read_takes_the_lock_only_while_segments_are_being_removed(parts: Read) -> None:
    parts.lock.taken = 0
    parts.read(0)
    parts.read(40)
    parts.reader.place_of(12)
    assert parts.lock.taken == 0
    parts.segments.generation += 1
    assert place(parts.read(0)) == (0, 0, 2 * SIZE)
    assert parts.lock.taken == 1


@pytest.mark.parametrize("outcome", [LogRead(None, 0, 0), OSError("gone"), IndexError("gone")])
def test_a_read_during_which_segments_were_removed_is_repeated_under_the_lock(
    parts: Read, monkeypatch: pytest.MonkeyPatch, outcome: LogRead | Exception
) -> None:
    real, parts.lock.taken = look_ups.read_scanning, 0
    seen: list[int] = []

    def read_scanning(*args, **kwargs) -> LogRead:
        seen.append(parts.lock.taken)
        if len(seen) > 1:
            return real(*args, **kwargs)
        with parts.segments.changing():
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    monkeypatch.setattr(look_ups, "read_scanning", read_scanning)
    assert place(parts.read(0)) == (0, 0, 2 * SIZE)
    assert seen == [0, 1]
    assert (parts.context.errors, parts.context.health.failure) == (0, None)


def test_a_timestamp_search_during_which_segments_were_removed_is_repeated(
    parts: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = look_ups.offset_for_timestamp, []

    def offset_for_timestamp(*args) -> TimestampOffset | None:
        seen.append(args[1])
        if len(seen) > 1:
            return real(*args)
        with parts.segments.changing():
            return None

    monkeypatch.setattr(look_ups, "offset_for_timestamp", offset_for_timestamp)
    assert parts.reader.offset_for_timestamp(1_012) == (1_012, 12, 3)
    assert seen == [1_012, 1_012]


# --- timestamps and aborted transactions


def test_a_timestamp_search_skips_records_before_the_log_start(parts: Read) -> None:
    assert parts.reader.offset_for_timestamp(1_003) == (1_003, 3, 3)
    parts.offsets.start = 15
    assert parts.reader.offset_for_timestamp(1_003) == (1_015, 15, 3)
    assert parts.reader.offset_for_timestamp(1_044) == (1_044, 44, 3)
    assert parts.reader.offset_for_timestamp(1_045) == (1_050, 50, 3)
    assert parts.reader.offset_for_timestamp(1_060) is None
    assert parts.reader.offset_for_timestamp(MAX_TIMESTAMP) == (1_059, 59, 3)


def test_all_records_of_a_batch_with_log_append_time_have_its_timestamp(parts: Read) -> None:
    parts.put(ten_at(60, log_append_time_ms=9_000))
    assert parts.reader.offset_for_timestamp(8_000) == (9_000, 60, 3)
    parts.offsets.start = 63
    assert parts.reader.offset_for_timestamp(9_000) == (9_000, 63, 3)


def test_aborted_transactions_are_those_with_records_in_the_range_even_if_they_ended_later(
    parts: Read,
) -> None:
    early, long, late = (
        AbortedTransaction(1, 2, 8, 5),
        AbortedTransaction(2, 5, 25, 21),
        AbortedTransaction(3, 21, 28, 29),
    )
    first, second, _ = parts.segments.all
    first.txn_index.append(early)
    for entry in (long, late):
        second.txn_index.append(entry)
    for begin, end, found in (
        (0, 60, [early, long, late]),
        (8, 9, [early, long]),
        (9, 20, [long]),
        (0, 5, [early]),
        (26, 27, [late]),
        (29, 60, []),
    ):
        assert look_ups.aborted_transactions(parts.segments.all, begin, end) == found, (begin, end)
