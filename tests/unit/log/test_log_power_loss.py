"""Recovery from what a power loss may leave, case by case; test_crash_consistency searches for more of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.log_manager import LogManager
from broker.utils.topic_partition import TopicPartition
from tests.support.logs import batch, contents, open_log, unlimited

SMALL = LogConfig(segment_bytes=150, index_interval_bytes=1)


def values(log) -> list[bytes | None]:
    return [value for _, value in contents(log)]


def log_of(directory: Path, *epochs: int, config: LogConfig = SMALL):
    """One batch a segment, the value its offset."""
    log = open_log(directory, config)
    for number, epoch in enumerate(epochs):
        log.append_as_leader(batch(b"%d" % number, b"." * 40, timestamp=1000 + number), epoch)
    return log


def test_the_log_ends_where_batches_are_missing_before_a_segment(tmp_path):
    """The later segment reached the disk, the end of the earlier one did not."""
    log_of(tmp_path, 0, 0, 0)
    (tmp_path / "t-0" / f"{2:020d}.log").write_bytes(b"")
    again = open_log(tmp_path, SMALL, clean=False)
    assert again.log_end_offset == 2
    assert values(again) == [b"0", b"." * 40]


def test_gaps_before_segments_of_a_compacted_log_stay(tmp_path):
    compacted = LogConfig(segment_bytes=150, cleanup_policy=frozenset({"compact"}))
    log_of(tmp_path, 0, 0, 0)
    (tmp_path / "t-0" / f"{2:020d}.log").write_bytes(b"")
    again = open_log(tmp_path, compacted, clean=False)
    assert again.log_end_offset == 6


def test_gaps_that_compaction_left_stay_when_the_topic_is_no_longer_compacted(tmp_path):
    """Nothing is missing below the recovery point, which is where the active segment begins after a roll."""
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=0)
    log = open_log(tmp_path, compacted)
    log.append_as_leader(batch(b"value", key=b"k"), 0)
    log.append_as_leader(batch(None, key=b"k"), 0)
    log.roll()
    log.append_as_leader(batch(b"acknowledged", key=b"k"), 0)
    log.high_watermark = log.log_end_offset
    for now_ms in (10_000, 20_000):
        clean_log(log, 0, 2, OffsetMap(1 << 20), now_ms=now_ms, pace=unlimited())
    assert (log.segments[0].size, log.recovery_point) == (0, 2)
    again = open_log(tmp_path, LogConfig(), clean=False, recovery_point=2)
    assert values(again) == [b"acknowledged"]


def test_the_log_ends_where_an_epoch_falls(tmp_path):
    """Batches from before a truncation, whose removal was lost, stand behind those written after it."""
    log_of(tmp_path / "old", 1, 1, 1)
    log_of(tmp_path / "new", 1, 2)
    left = f"{4:020d}.log"
    shutil.copy(tmp_path / "old" / "t-0" / left, tmp_path / "new" / "t-0" / left)
    again = open_log(tmp_path / "new", SMALL, clean=False)
    assert again.log_end_offset == 4
    assert again.leader_epochs.entries == ((1, 0), (2, 2))


def test_epochs_are_read_from_the_batches_when_their_file_is_of_before_a_truncation(tmp_path):
    log_of(tmp_path, 1, 2)
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n7 1\n")
    again = open_log(tmp_path, SMALL, clean=False)
    assert again.leader_epochs.entries == ((1, 0), (2, 2))


def test_an_epoch_file_that_was_torn_in_a_number_is_made_again(tmp_path):
    log_of(tmp_path, *[1] * 6, 2)
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n2\n1 0\n2 12\n"
    path.write_text("0\n2\n1 0\n2 1")
    again = open_log(tmp_path, SMALL, clean=False)
    assert again.leader_epochs.entries == ((1, 0), (2, 12))


def test_a_segment_that_ends_at_the_recovery_point_gets_its_indexes_trimmed(tmp_path):
    """It was flushed while it was active; that rolling trimmed its indexes was lost. Their zeros would say
    that it is from 1970, and retention would believe them.
    """
    log = log_of(tmp_path, 0, 0)
    first = log.segments[0]
    for kind, entry_bytes in ((".index", 8), (".timeindex", 12)):
        with first.path(kind).open("ab") as file:
            file.truncate(20 * entry_bytes)
    again = open_log(tmp_path, SMALL, clean=False, recovery_point=2)
    assert again.segments[0].largest_noted_timestamp == 1000
    assert first.path(".timeindex").stat().st_size == 12


def test_a_compaction_that_was_interrupted_between_its_renames_is_finished(tmp_path):
    """The old log is away, the old indexes are not yet: the new segment gets its own."""
    log = log_of(tmp_path, 0, 0)
    directory = log.dir
    base = directory / f"{0:020d}"
    log_of(tmp_path / "other", 0, config=LogConfig()).close()
    other = tmp_path / "other" / "t-0" / f"{0:020d}"
    for kind in (".log", ".index", ".timeindex"):
        shutil.copy(f"{other}{kind}", f"{base}{kind}.swap")
    Path(f"{base}.log").rename(f"{base}.log.deleted")
    Path(f"{base}.index").write_bytes((1).to_bytes(4, "big") + (77).to_bytes(4, "big"))
    again = open_log(tmp_path, SMALL, clean=False, recovery_point=4)
    assert values(again)[:2] == [b"0", b"." * 40]
    assert all(position == 0 for _, position in again.segments[0].offset_index.file)
    assert not [path for path in directory.iterdir() if path.suffix in {".swap", ".deleted"}]


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_of_a_segment_is_passed_over(tmp_path, capsys, clean):
    """Somebody kept one in the log's own directory. Taken for a segment, it made recovery delete the real one."""
    log = log_of(tmp_path, 0, 0)
    log.flush()
    log.close()
    copy = log.dir / f"{2:020d}-copy.log"
    shutil.copy(log.dir / f"{2:020d}.log", copy)
    again = open_log(tmp_path, SMALL, clean=clean)
    again.high_watermark = 4
    assert (again.num_segments, again.delete_old_segments()) == (2, 0)
    assert values(again)[::2] == [b"0", b"1"]
    assert copy.exists()
    assert capsys.readouterr().out.count("log_file_passed_over") == 1


def test_unfinished_files_are_removed(tmp_path):
    log = log_of(tmp_path, 0)
    (log.dir / "leader-epoch-checkpoint.tmp").write_text("0\n1\n")
    open_log(tmp_path, SMALL, clean=False)
    assert not list(log.dir.glob("*.tmp"))


def test_a_stop_syncs_also_logs_that_were_flushed_to_their_end(tmp_path, monkeypatch):
    """Closing has written their snapshots and indexes, which the clean marker vouches for."""
    synced: list[Path] = []
    monkeypatch.setattr("broker.log.log_manager.sync_filesystem", synced.append)
    manager = LogManager([str(tmp_path)], LogConfig())
    manager.startup()
    log = manager.get_or_create(TopicPartition("t", 0))
    log.append_as_leader(batch(b"x"), 0)
    log.flush()
    manager.shutdown()
    assert synced == [tmp_path]


def test_the_recovery_point_is_lowered_before_a_truncation_touches_a_file(tmp_path):
    log = log_of(tmp_path, 0, 0, 0)
    log.flush()
    seen = []
    log.on_recovery_points_lowered = lambda offsets: seen.append(
        (offsets[log], len(list(log.dir.glob("*.log"))))
    )
    log.truncate_to(2)
    assert seen == [(2, 3)]
