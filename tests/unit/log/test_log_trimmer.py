"""LogTrimmer alone, without a Log around it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log_appender import LogAppender
from broker.log.log_trimmer import LogTrimmer
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from tests.support.log_parts import LogParts


class Trimmed(LogParts):
    """``count`` segments of ten offsets each. Each has one batch of producer 7, its own epoch and a snapshot."""

    def __init__(
        self, directory: Path, config: LogConfig | None = None, *, count: int = 3, base_offset: int = 0
    ) -> None:
        super().__init__(directory, config, base_offset=base_offset)
        for number in range(count):
            records = [Record(None, b"x", timestamp=1_000) for _ in range(10)]
            data = build_batch(
                records,
                base_offset=self.offsets.end,
                producer_id=7,
                producer_epoch=0,
                base_sequence=10 * number,
            )
            self.put(data, roll=number > 0)
            self.epochs.assign(number, self.offsets.end - 10)
            self.producers.take_snapshot()
        self.lowered: list[int] = []
        appender = LogAppender(
            context=self.context,
            offsets=self.offsets,
            segments=self.segments,
            durability=self.durability,
            epochs=self.epochs,
            producers=self.producers,
            config=self.config,
        )
        self.trimmer = LogTrimmer(
            context=self.context,
            offsets=self.offsets,
            segments=self.segments,
            durability=self.durability,
            epochs=self.epochs,
            producers=self.producers,
            appender=appender,
            lower_recovery_point=self.lowered.append,
        )

    @property
    def extent(self) -> tuple[int, int, int]:
        """Log start, high watermark, log end."""
        return self.offsets.start, self.offsets.high_watermark, self.offsets.end


@pytest.fixture
def parts(tmp_path: Path) -> Trimmed:
    return Trimmed(tmp_path / "t-0")


def failing(code: int) -> Callable[..., None]:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


CHANGES: dict[str, Callable[[LogTrimmer], object]] = {
    "truncation": lambda trimmer: trimmer.truncate_to(15),
    "full truncation": lambda trimmer: trimmer.truncate_fully_and_start_at(15),
    "retention": lambda trimmer: trimmer.delete_old_segments(20),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_generation_is_odd_while_segments_are_removed_and_even_afterwards(
    parts: Trimmed, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    parts.offsets.mark(20)
    parts.offsets.start = 20
    seen: list[int] = []
    for name in ("put", "drop_oldest"):
        real = getattr(type(parts.segments), name)

        def taken(*args, real=real):
            seen.append(parts.segments.generation)
            return real(*args)

        monkeypatch.setattr(type(parts.segments), name, taken)
    CHANGES[change](parts.trimmer)
    assert seen
    assert all(generation & 1 for generation in seen)
    assert parts.segments.generation == seen[-1] + 1


# --- truncation


def test_a_truncation_takes_back_epochs_snapshots_and_sequences_with_the_batches(parts: Trimmed) -> None:
    parts.offsets.mark(30)
    assert parts.trimmer.truncate_to(25)
    assert (parts.bases, parts.extent) == ([0, 10, 20], (0, 20, 20))
    assert parts.epochs.entries == ((0, 0), (1, 10))
    assert parts.files(".snapshot") == [10, 20]
    assert parts.producers.state.producers[7].last_sequence == 19
    assert parts.lowered == [25, 20], "to the requested offset first, then to the new end"


def test_a_truncation_at_the_log_end_only_drops_epochs_without_batches(parts: Trimmed) -> None:
    parts.epochs.assign(8, 30, write=False)
    assert not parts.trimmer.truncate_to(30)
    assert parts.epochs.entries[-1] == (2, 20)
    assert (parts.segments.generation, parts.lowered, parts.extent) == (0, [], (0, 0, 30))


@pytest.mark.parametrize("begin_at", [5, 99])
def test_a_log_that_restarts_elsewhere_keeps_nothing(tmp_path: Path, begin_at: int) -> None:
    parts = Trimmed(tmp_path / "t-0", base_offset=40)
    if begin_at < 40:
        assert parts.trimmer.truncate_to(begin_at), "it is before the first segment"
    else:
        parts.trimmer.truncate_fully_and_start_at(begin_at)
    assert (parts.bases, parts.extent) == ([begin_at], (begin_at, begin_at, begin_at))
    assert (parts.files(".log"), parts.files(".snapshot")) == ([begin_at], [])
    assert (parts.epochs.entries, parts.producers.state.producers) == ((), {})
    assert parts.lowered == [begin_at]


def test_a_truncation_that_leaves_only_deleted_records_restarts_the_log_at_its_start(tmp_path: Path) -> None:
    """Appends after a gap would look like lost records to recovery."""
    parts = Trimmed(tmp_path / "t-0", count=1)
    parts.offsets.mark(10)
    assert parts.trimmer.increment_log_start_offset(5)
    assert parts.trimmer.truncate_to(7)
    assert (parts.bases, parts.extent) == ([5], (5, 5, 5))


def test_a_full_disk_during_a_truncation_fails_the_directory(
    parts: Trimmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the files is unknown afterwards."""
    monkeypatch.setattr(os, "ftruncate", failing(errno.ENOSPC))
    with pytest.raises(KafkaError, match="truncate") as raised:
        parts.trimmer.truncate_to(15)
    assert raised.value.error_code is Errors.KAFKA_STORAGE_ERROR
    assert parts.context.health.failure is not None
    assert parts.segments.generation == 2


# --- retention


def test_a_segment_is_deleted_once_the_log_start_has_passed_its_end(parts: Trimmed) -> None:
    parts.offsets.mark(30)
    assert parts.trimmer.increment_log_start_offset(19)
    assert parts.epochs.entries == ((1, 19), (2, 20))
    assert parts.trimmer.delete_old_segments() == 1
    assert (parts.bases, parts.offsets.start) == ([10, 20], 19)
    assert parts.trimmer.increment_log_start_offset(20)
    assert parts.trimmer.delete_old_segments() == 1
    assert (parts.bases, parts.files(".log"), parts.files(".snapshot")) == ([20], [20], [20, 30])


@pytest.mark.parametrize(("told", "mark", "left"), [(None, 15, [10, 20]), (9, 15, [10, 20]), (99, 30, [30])])
def test_retention_takes_a_higher_high_watermark_but_never_a_lower_one_or_one_past_the_end(
    tmp_path: Path, told: int | None, mark: int, left: list[int]
) -> None:
    parts = Trimmed(tmp_path / "t-0", LogConfig(retention_ms=1))
    parts.offsets.mark(15)
    parts.trimmer.delete_old_segments(told)
    assert (parts.offsets.high_watermark, parts.bases) == (mark, left)


def test_files_are_removed_oldest_first_after_the_segments_have_left_the_log(
    parts: Trimmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.offsets.mark(20)
    parts.offsets.start = 20
    real, seen = Segment.change_suffix, []

    def change_suffix(segment: Segment, suffix: str) -> None:
        seen.append((segment.base_offset, parts.bases))
        real(segment, suffix)

    monkeypatch.setattr(Segment, "change_suffix", change_suffix)
    assert parts.trimmer.delete_old_segments() == 2
    assert seen == [(0, [20]), (10, [20])]


def test_files_of_removed_segments_are_deleted_even_if_retention_fails_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a restart would find segments before the log's first one."""
    parts = Trimmed(tmp_path / "t-0", LogConfig(retention_ms=1))
    parts.offsets.mark(30)
    parts.offsets.start = 10
    monkeypatch.setattr(Segment, "create", failing(errno.EMFILE))
    with pytest.raises(KafkaError, match="begin a segment of"):
        parts.trimmer.delete_old_segments()  # the active segment has expired too, and must be rolled first
    assert (parts.bases, parts.files(".log")) == ([10, 20], [10, 20])


def test_a_segment_whose_files_cannot_be_renamed_is_an_error_and_leaves_the_log_all_the_same(
    parts: Trimmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.offsets.mark(20)
    parts.offsets.start = 20
    monkeypatch.setattr(Segment, "change_suffix", failing(errno.EIO))
    with pytest.raises(KafkaError, match="delete segments of"):
        parts.trimmer.delete_old_segments()
    assert (parts.bases, parts.files(".log")) == ([20], [0, 10, 20])
    assert parts.context.health.failure is not None


# --- compaction's swap, and closed logs


def test_a_compacted_segment_is_swapped_in_only_if_no_segment_was_removed_since(parts: Trimmed) -> None:
    directory, generation = parts.context.directory, parts.segments.generation
    old = parts.segments.all[:2]
    new = Segment.create(directory, 0, 1 << 20, 0, ".cleaned")
    assert not parts.trimmer.replace_segments(old, new, generation - 2)
    assert new.path(".log").name.endswith(".log.cleaned")  # a load removes it
    assert parts.bases == [0, 10, 20]
    assert parts.trimmer.replace_segments(old, new, generation)
    assert (parts.segments.all[0] is new, parts.bases, parts.files(".log")) == (True, [0, 20], [0, 20])
    assert parts.segments.generation == generation + 2


def test_a_closed_log_refuses_truncation_and_retention_skips_it(parts: Trimmed) -> None:
    parts.offsets.mark(30)
    parts.offsets.start = 20
    parts.context.is_closed = True
    for cut in (
        parts.trimmer.truncate_to,
        parts.trimmer.truncate_fully_and_start_at,
        parts.trimmer.increment_log_start_offset,
    ):
        with pytest.raises(KafkaError, match="is closed"):
            cut(25)
    assert parts.trimmer.delete_old_segments() == 0
    assert not parts.trimmer.replace_segments(parts.segments.all[:1], parts.segments.all[1], 0)
    assert (parts.bases, parts.files(".log"), parts.extent) == ([0, 10, 20], [0, 10, 20], (20, 30, 30))
