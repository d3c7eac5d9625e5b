"""Rolling, truncation, retention, epochs, and what a restart makes of a damaged directory."""

from __future__ import annotations

import struct
import threading
import zlib

import pytest
import structlog

from broker.config.log_config import LogConfig
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.loading import loader
from broker.log.loading.loader import LoadParameters, load_log
from broker.log.retention import Reason, RetentionRules, SegmentFacts, segments_to_delete
from broker.log.segments import segment as segment_module
from broker.log.segments.index_file import IndexFile
from broker.protocol.errors import Errors, KafkaError
from tests.support.clocks import ManualClock
from tests.support.logs import TP, batch, contents, open_log

SMALL = LogConfig(segment_bytes=200, index_interval_bytes=60, file_delete_delay_ms=0)


def fill(log, count, epoch=0, timestamp=1000):
    for n in range(count):
        log.append_as_leader(batch(b"v%d" % n, timestamp=timestamp), epoch)
    return log


def bases(log):
    return [segment.base_offset for segment in log.segments]


def test_active_indexes_are_preallocated_as_kafkas_and_trimmed_on_roll_and_close(tmp_path):
    log = fill(open_log(tmp_path, LogConfig(index_interval_bytes=60)), 5)
    first = log.segments[0]
    log.flush()
    assert first.path(".index").stat().st_size == 10485760
    assert first.path(".timeindex").stat().st_size == 10485756
    assert first.path(".index").stat().st_blocks * 512 < 100_000
    log.roll()
    assert first.path(".index").stat().st_size == 8 * len(first.offset_index.file) > 0
    assert first.path(".timeindex").stat().st_size == 12
    fill(log, 1)
    log.close()
    assert log.segments[1].path(".index").stat().st_size == 0
    assert log.segments[1].path(".timeindex").stat().st_size == 12


def index_files(log):
    return sorted(path.name for path in log.dir.iterdir() if path.suffix in {".index", ".timeindex"})


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_was_never_written_to_has_no_index_files_and_misses_none(tmp_path, clean):
    """Thousands of partitions are made at once, and most stay idle."""
    log = open_log(tmp_path)
    log.flush()
    if clean:
        log.close()
    assert index_files(log) == []
    again = open_log(tmp_path, clean=clean)
    assert index_files(again) == []
    fill(again, 3)
    again.close()
    assert index_files(again) == [f"{0:020d}.index", f"{0:020d}.timeindex"]
    assert open_log(tmp_path, clean=True).segments[0].largest_noted_timestamp == 1000


def test_a_log_whose_indexes_were_not_made_yet_is_read_once_after_a_crash(tmp_path, monkeypatch):
    fill(open_log(tmp_path), 3).flush()
    assert [path.name for path in (tmp_path / "t-0").iterdir() if "index" in path.suffix] == []
    recovered = []
    real = loader.recover_segment
    monkeypatch.setattr(loader, "recover_segment", lambda *a, **k: recovered.append(a) or real(*a, **k))
    again = open_log(tmp_path, clean=False, recovery_point=3)
    assert (len(recovered), again.log_end_offset) == (1, 3)
    assert again.segments[0].largest_noted_timestamp == 1000


def test_one_missing_index_is_made_anew_though_the_other_vouches_for_what_is_durable(tmp_path):
    log = fill(open_log(tmp_path, LogConfig(index_interval_bytes=60)), 5)
    log.flush()
    log.segments[0].path(".timeindex").unlink()
    again = open_log(tmp_path, LogConfig(index_interval_bytes=60), clean=False, recovery_point=5)
    assert again.segments[0].largest_noted_timestamp == 1000
    assert again.offset_for_timestamp(1000).offset == 0


def test_the_name_of_an_index_that_is_made_later_is_synced_with_its_first_entries(tmp_path, monkeypatch):
    """The recovery point says that they are on the disk."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=60))
    fill(log, 1).flush()
    synced = []
    monkeypatch.setattr(segment_module, "sync_dir", lambda path: synced.append((path, index_files(log))))
    fill(log, 3).flush()
    assert synced == [(log.dir, [f"{0:020d}.index", f"{0:020d}.timeindex"])]
    fill(log, 1).flush()
    assert len(synced) == 1, "its name is on the disk"


def test_rolling_an_empty_segment_changes_nothing(tmp_path):
    log = open_log(tmp_path)
    log.roll()
    assert bases(log) == [0]


def test_truncation_removes_whole_batches_later_segments_and_epochs(tmp_path):
    log = fill(fill(open_log(tmp_path, SMALL), 6, epoch=1), 6, epoch=3)
    assert log.truncate_to(7)
    assert (log.log_end_offset, contents(log)[-1][0]) == (7, 6)
    assert log.leader_epochs.entries == ((1, 0), (3, 6))
    log.truncate_to(6)
    assert log.leader_epochs.entries == ((1, 0),)
    assert not log.truncate_to(6)
    assert sorted(p.name for p in log.dir.glob("*.log")) == [s.path(".log").name for s in log.segments]


def test_truncation_inside_a_batch_removes_it_whole(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a", b"b", b"c"), 0)
    log.truncate_to(2)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_truncation_takes_recovery_point_and_high_watermark_back_and_says_so(tmp_path):
    log = fill(open_log(tmp_path), 5)
    log.flush()
    log.high_watermark = 5
    told = []
    log.on_recovery_points_lowered = lambda offsets: told.append(offsets[log])
    log.truncate_to(3)
    assert (log.recovery_point, log.high_watermark, told) == (3, 3, [3])


def test_starting_anew_leaves_one_empty_segment_at_the_offset(tmp_path):
    log = fill(open_log(tmp_path, SMALL), 6)
    log.truncate_fully_and_start_at(40)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (40, 40, [40])
    log.append_as_leader(batch(b"x"), 0)
    assert contents(open_log(tmp_path, SMALL, clean=False)) == [(40, b"x")]


def test_the_log_start_moves_up_to_the_high_watermark_only(tmp_path):
    log = fill(open_log(tmp_path, SMALL), 6)
    log.high_watermark = 4
    with pytest.raises(KafkaError) as raised:
        log.increment_log_start_offset(5)
    assert raised.value.error_code is Errors.OFFSET_OUT_OF_RANGE
    assert log.increment_log_start_offset(4)
    assert not log.increment_log_start_offset(3)
    assert log.delete_old_segments() == 2
    assert (log.log_start_offset, bases(log)[0]) == (4, 4)
    assert log.offset_for_timestamp(-2).offset == 4


def test_retention_by_time_spares_what_is_not_replicated_and_rolls_the_last_segment(tmp_path):
    clock = ManualClock(10_000)
    config = LogConfig(segment_bytes=200, retention_ms=1000, file_delete_delay_ms=0)
    log = fill(open_log(tmp_path, config, clock=clock), 6)
    assert log.delete_old_segments(0) == 0
    assert log.delete_old_segments(3) == 1
    assert log.delete_old_segments(6) == 2
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([6], 6, 6)
    assert not list(log.dir.glob("*.deleted"))
    assert contents(open_log(tmp_path, config)) == []


def test_retention_by_size_keeps_at_least_the_limit(tmp_path):
    log = fill(open_log(tmp_path, LogConfig(segment_bytes=200, retention_bytes=300, retention_ms=-1)), 10)
    log.delete_old_segments(10)
    assert 300 <= log.size_bytes <= 500


def facts(*rows):
    return [SegmentFacts(*row) for row in rows]


def test_retention_chooses_the_oldest_by_reason():
    segments = facts((10, 100, 1000, False), (20, 100, 5000, False), (30, 100, 2000, True))
    where = {"now_ms": 6000, "log_start_offset": 0, "high_watermark": 30}
    assert segments_to_delete(segments, RetentionRules(4000, -1, True), **where) == (1, Reason.TIME)
    assert segments_to_delete(segments, RetentionRules(500, -1, True), **where) == (3, Reason.TIME)
    assert segments_to_delete(segments, RetentionRules(-1, 150, True), **where) == (1, Reason.SIZE)
    assert segments_to_delete(segments, RetentionRules(-1, 100, True), **where) == (2, Reason.SIZE)
    assert segments_to_delete(segments, RetentionRules(500, 0, False), **where) is None
    assert segments_to_delete(segments, RetentionRules(-1, -1, True), **where) is None
    where |= {"log_start_offset": 20}
    assert segments_to_delete(segments, RetentionRules(-1, -1, False), **where) == (2, Reason.LOG_START)
    where |= {"high_watermark": 15}
    assert segments_to_delete(segments, RetentionRules(500, -1, True), **where) == (1, Reason.LOG_START)


def test_epoch_ends_answer_as_kip_101_and_279_say(tmp_path):
    cache = LeaderEpochCache(tmp_path)
    assert cache.end_offset_for(0, 100) == (-1, -1)
    for epoch, start in ((2, 10), (5, 20), (7, 30)):
        cache.assign(epoch, start)
    assert cache.end_offset_for(7, 44) == (7, 44)
    assert cache.end_offset_for(5, 44) == (5, 30)
    assert cache.end_offset_for(6, 44) == (5, 30)
    assert cache.end_offset_for(3, 44) == (2, 20)
    assert cache.end_offset_for(1, 44) == (1, 10)
    assert cache.end_offset_for(8, 44) == (-1, -1)
    assert cache.end_offset_for(-1, 44) == (-1, -1)
    assert [cache.epoch_for_offset(o) for o in (9, 10, 19, 20, 99)] == [-1, 2, 2, 5, 7]
    assert LeaderEpochCache(tmp_path).entries == cache.entries


def test_assigning_a_contradicting_epoch_drops_what_it_contradicts(tmp_path):
    cache = LeaderEpochCache(tmp_path)
    for epoch, start in ((1, 0), (2, 10), (3, 20)):
        cache.assign(epoch, start)
    cache.assign(4, 15)
    assert cache.entries == ((1, 0), (2, 10), (4, 15))
    cache.truncate_from_start(12)
    assert cache.entries == ((2, 12), (4, 15))


def test_a_full_disk_under_the_epoch_file_stops_flushes_but_not_appends(tmp_path, monkeypatch):
    log = open_log(tmp_path)

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.log.leader_epochs.write_checkpoint", full)
    log.append_as_leader(batch(b"a"), 5)
    with pytest.raises(KafkaError):
        log.flush()
    assert (log.leader_epochs.latest_epoch, log.recovery_point, log.health.failure) == (5, 0, None)
    monkeypatch.undo()
    log.flush()
    assert (LeaderEpochCache(log.dir).entries, log.recovery_point) == (((5, 0),), 1)


@pytest.mark.parametrize("content", ["", "garbage", "0\n5\n1 0\n", "0\n2\n3 9\n1 4\n", "7\n0\n"])
def test_an_unreadable_epoch_file_is_made_again_from_the_batches(tmp_path, content):
    log = fill(fill(open_log(tmp_path, SMALL), 3, epoch=1), 3, epoch=4)
    log.close()
    (log.dir / "leader-epoch-checkpoint").write_text(content)
    assert open_log(tmp_path, SMALL).leader_epochs.entries == ((1, 0), (4, 3))


# -- recovery


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda data: data[:-5], 1),
        (lambda data: data[:-66], 1),
        (lambda data: data + b"\x00" * 4096, 0),
        (lambda data: data + b"\xff" * 30, 0),
        (lambda data: data[:-3] + b"xyz", 1),
        (lambda data: data[:80] + b"\x55" + data[81:], 4),
    ],
)
def test_a_torn_tail_is_cut_off_with_one_line_of_how_much(tmp_path, damage, lost):
    log = fill(open_log(tmp_path), 5)
    log.close()
    path = log.segments[0].path(".log")
    good = path.read_bytes()
    path.write_bytes(damage(good))
    with structlog.testing.capture_logs() as lines:
        again = open_log(tmp_path, clean=False)
    assert again.log_end_offset == 5 - lost
    (line,) = [entry for entry in lines if entry["event"] == "log_tail_truncated"]
    kept = len(good) * (5 - lost) // 5
    assert (line["bytes"], line["at_offset"]) == (len(damage(good)) - kept, 5 - lost)
    assert path.stat().st_size == kept
    again.append_as_leader(batch(b"next"), 1)
    assert contents(again)[-1] == (5 - lost, b"next")


def test_segments_behind_a_fault_are_removed_and_counted(tmp_path):
    log = fill(open_log(tmp_path, SMALL), 9)
    log.close()
    second = log.segments[1].path(".log")
    data = bytearray(second.read_bytes())
    data[100] ^= 1
    second.write_bytes(data)
    with structlog.testing.capture_logs() as lines:
        again = open_log(tmp_path, SMALL, clean=False)
    assert again.log_end_offset < 9
    (line,) = [entry for entry in lines if entry["event"] == "log_tail_truncated"]
    assert line["segments_removed"] == len(log.segments) - 2
    assert len(list(log.dir.glob("*.log"))) == 2


def test_what_lies_below_the_recovery_point_is_not_read_again(tmp_path):
    log = fill(open_log(tmp_path, SMALL), 9)
    log.flush()
    point = log.recovery_point
    log.close()
    first = log.segments[0].path(".log")
    data = bytearray(first.read_bytes())
    data[69] ^= 1  # would be noticed if it were read
    first.write_bytes(data)
    assert open_log(tmp_path, SMALL, clean=False, recovery_point=point).log_end_offset == 9
    assert open_log(tmp_path, SMALL, clean=False).log_end_offset == 0


def test_indexes_are_the_same_after_any_recovery(tmp_path):
    config = LogConfig(index_interval_bytes=100, segment_bytes=100_000)
    log = open_log(tmp_path, config)
    for n in range(200):
        log.append_as_leader(batch(b"x" * (n % 50), timestamp=1000 + n), 0)
        if n == 120:
            log.flush()
    log.close()
    files = {kind: log.segments[0].path(kind) for kind in (".index", ".timeindex")}
    expected = {kind: path.read_bytes() for kind, path in files.items()}
    assert len(expected[".index"]) > 100
    for recovery_point in (0, 1, 60, 121, 200):
        open_log(tmp_path, config, clean=False, recovery_point=recovery_point).close()
        assert {kind: path.read_bytes() for kind, path in files.items()} == expected
    for path in files.values():
        path.unlink()
    open_log(tmp_path, config).close()
    assert {kind: path.read_bytes() for kind, path in files.items()} == expected


def test_an_index_that_is_made_anew_is_never_cut_to_nothing(tmp_path):
    """A file that is emptied and written again ext4 writes out at once: a recovery has thousands."""
    index = IndexFile(tmp_path / "00.index", struct.Struct(">ii"), 80)
    index.append(1, 2)
    index.trim()
    index.reset()
    assert index.path.stat().st_size > 0
    assert len(index) == len(IndexFile(index.path, struct.Struct(">ii"), 80)) == 0
    index.append(3, 4)
    index.trim()
    assert list(IndexFile(index.path, struct.Struct(">ii"), 80)) == [(3, 4)]
    assert index.path.stat().st_size == 8


def test_a_log_whose_directory_is_renamed_for_deletion_is_read_on_by_who_holds_it(tmp_path):
    log = fill(open_log(tmp_path, LogConfig(segment_bytes=2000, index_interval_bytes=60)), 100)
    middle = log.segments[len(log.segments) // 2].base_offset + 5
    log.mark_deleted()
    assert log.reader.read(middle, 9999, end_offset=100, min_one_batch=True).base_offset == middle
    assert log.health.failure is None


@pytest.mark.parametrize("garbage", [b"\x00" * 80, b"\xff" * 80, b"\x01" * 77])
def test_a_senseless_index_is_made_again(tmp_path, garbage):
    config = LogConfig(index_interval_bytes=60)
    log = fill(open_log(tmp_path, config), 20)
    log.close()
    path = log.segments[0].path(".index")
    good = path.read_bytes()
    path.write_bytes(garbage)
    again = open_log(tmp_path, config)
    assert len(contents(again)) == 20
    again.close()
    assert path.read_bytes() == good


def test_a_log_cut_below_its_start_begins_anew_there(tmp_path):
    log = fill(open_log(tmp_path), 5)
    log.close()
    path = log.segments[0].path(".log")
    path.write_bytes(path.read_bytes()[:10])
    again = open_log(tmp_path, clean=False, log_start_offset=3)
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)


def test_an_offset_that_cannot_follow_is_noticed_though_no_checksum_covers_it(tmp_path):
    log = fill(open_log(tmp_path, SMALL), 9)
    log.close()
    first = log.segments[0].path(".log")
    for position in (70, 77):
        data = bytearray(first.read_bytes())
        data[position] ^= 0x40
        first.write_bytes(data)
        assert open_log(tmp_path, SMALL, clean=False).log_end_offset == 1
        log = fill(open_log(tmp_path, SMALL), 8)
        log.close()


def test_batches_larger_than_the_recovery_buffer_are_verified_too(tmp_path):
    config = LogConfig(max_message_bytes=10_000_000)
    log = open_log(tmp_path, config)
    for size in (10, 3_000_000, 20, 2_000_000):
        log.append_as_leader(batch(b"z" * size), 0)
    log.close()
    assert open_log(tmp_path, config, clean=False).log_end_offset == 4
    path = log.segments[0].path(".log")
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert open_log(tmp_path, config, clean=False).log_end_offset == 3


def test_recovery_can_be_stopped(tmp_path):
    fill(open_log(tmp_path), 5)
    cancel = threading.Event()
    cancel.set()
    parameters = LoadParameters(False, 0, 0, 1000, ManualClock(), cancel=cancel)
    with pytest.raises(LoadCancelled):
        load_log(tmp_path / "t-0", TP, LogConfig(), parameters)
    assert len(contents(open_log(tmp_path, clean=False))) == 5


@pytest.mark.parametrize("clean", [True, False])
def test_damage_behind_messages_of_an_old_format_is_refused_and_not_cut_off(tmp_path, clean):
    directory = tmp_path / "t-0"
    directory.mkdir()
    body = struct.pack(">bbq", 1, 0, 1234) + struct.pack(">i", -1) + struct.pack(">i", 3) + b"old"
    message = struct.pack(">I", zlib.crc32(body)) + body
    data = struct.pack(">qi", 0, len(message)) + message + bytes(40)
    path = directory / "00000000000000000000.log"
    path.write_bytes(data)
    for index in (".index", ".timeindex"):  # with them, a clean log is not read through
        path.with_suffix(index).touch()
    with pytest.raises(LogDirError, match="format version 0 or 1"):
        open_log(tmp_path, clean=clean)
    assert path.read_bytes() == data


def test_orphan_indexes_and_given_up_files_are_removed(tmp_path):
    log = fill(open_log(tmp_path), 2)
    log.close()
    for name in ("00000000000000000099.index", "00000000000000000000.log.deleted", "x.cleaned"):
        (log.dir / name).write_bytes(b"12345678")
    again = open_log(tmp_path)
    assert len(contents(again)) == 2
    assert not (log.dir / "00000000000000000099.index").exists()
    assert not (log.dir / "x.cleaned").exists()
