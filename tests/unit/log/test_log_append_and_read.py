"""Appending and reading one partition's log."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.free_space import FreeSpaceFloor, check_free_space
from broker.log.segments.index_file import IndexFile
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch, iter_batches, read_header, read_records
from tests.support.clocks import ManualClock
from tests.support.logs import batch, contents, open_log


def code_of(action, *args, **kwargs) -> Errors:
    with pytest.raises(KafkaError) as raised:
        action(*args, **kwargs)
    return raised.value.error_code


def test_appended_batches_get_consecutive_offsets_and_the_leaders_epoch(tmp_path):
    log = open_log(tmp_path)
    first = log.append_as_leader(batch(b"a", b"b"), 4)
    second = log.append_as_leader(batch(b"c"), 5)
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 1, 2)
    assert (second.first_offset, second.last_offset, second.last_leader_epoch) == (2, 2, 5)
    assert [h.leader_epoch for h in iter_batches(log.read_bytes(0, 9999))] == [4, 5]
    assert log.leader_epochs.entries == ((4, 0), (5, 2))
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_several_batches_in_one_append_are_one_write(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    calls = []
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: calls.append(len(args[1])) or real(*args))
    data = bytes(batch(b"a")) + bytes(batch(b"b", b"c"))
    info = log.append_as_leader(memoryview(bytearray(data)), 0)
    assert calls == [len(data)]
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("damage", ["crc", "length", "magic", "second"])
def test_nothing_is_appended_of_a_damaged_batch(tmp_path, damage):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"good"), 0)
    data = bytearray(bytes(batch(b"one")) + bytes(batch(b"two")))
    if damage == "crc":
        data[70] ^= 1
    elif damage == "length":
        data[8:12] = (1 << 30).to_bytes(4, "big")
    elif damage == "magic":
        data[16] = 9
    else:
        data[-1] ^= 1
    assert code_of(log.append_as_leader, memoryview(data), 0) is Errors.CORRUPT_MESSAGE
    assert log.log_end_offset == 1
    assert log.size_bytes == log.segments[0].path(".log").stat().st_size
    assert contents(log) == [(0, b"good")]


def test_an_append_larger_than_a_segment_is_refused(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    assert code_of(log.append_as_leader, batch(bytes(100)), 0) is Errors.RECORD_LIST_TOO_LARGE


def test_log_append_time_is_the_brokers_clock(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"), clock=ManualClock(777))
    info = log.append_as_leader(batch(b"a", timestamp=5), 0)
    assert (info.log_append_time, info.max_timestamp) == (777, 777)
    assert read_records(log.read_bytes(0, 1000))[0].timestamp == 777


def test_create_time_appends_answer_no_append_time(tmp_path):
    assert open_log(tmp_path).append_as_leader(batch(b"a"), 0).log_append_time == -1


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topics_own_codec_is_enforced(tmp_path, wanted):
    log = open_log(tmp_path, LogConfig(compression_type=wanted))
    view = batch(*[b"x" * 100] * 20, compression="gzip", producer_id=5, producer_epoch=0, base_sequence=0)
    assert log.appender.needs_recompression(view) is (wanted != "gzip")
    log.append_as_leader(view, 0)
    (header,) = iter_batches(log.read_bytes(0, 1 << 20))
    assert header.codec_id == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(wanted)
    assert (header.producer_id, header.base_sequence) == (5, 0)
    assert contents(log) == [(n, b"x" * 100) for n in range(20)]


def test_the_producers_codec_is_kept_by_default(tmp_path):
    log = open_log(tmp_path)
    view = batch(b"x" * 1000, compression="lz4")
    assert not log.appender.needs_recompression(view)
    log.append_as_leader(view, 0)
    assert read_header(log.read_bytes(0, 10_000)).codec_id == 3


def test_read_only_bytes_are_appended_too(tmp_path):
    log = open_log(tmp_path)
    data = build_batch([Record(b"k", b"v", (), 1)])
    assert log.append_as_leader(memoryview(data), 3).first_offset == 0
    assert read_header(data).leader_epoch == -1


def test_a_failed_write_leaves_the_log_as_it_was_and_the_next_one_succeeds(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    size = log.size_bytes
    real = os.pwrite

    def half_then_full(fd, data, position):
        if len(data) > 200:
            return real(fd, data[:100], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half_then_full)
    assert code_of(log.append_as_leader, batch(bytes(180)), 0) is Errors.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert (log.log_end_offset, log.size_bytes) == (1, size)
    assert log.segments[0].path(".log").stat().st_size == size
    check_free_space(FreeSpaceFloor(0, 0), [log.health])
    log.append_as_leader(batch(b"b"), 0)
    assert contents(log) == [(0, b"a"), (1, b"b")]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, data[:33], position))
    log.append_as_leader(batch(bytes(500)), 0)
    monkeypatch.undo()
    assert contents(log) == [(0, bytes(500))]


def test_a_full_disk_under_the_index_does_not_fail_appends(tmp_path, monkeypatch):
    config = LogConfig(index_interval_bytes=1)
    log = open_log(tmp_path, config)
    index = log.segments[0].offset_index.file

    def full(**_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(index, "_write", full)
    for _ in range(300):
        log.append_as_leader(batch(b"a"), 0)
    monkeypatch.undo()
    assert len(index) == 299
    assert [offset for offset, _ in contents(log, 250)] == list(range(250, 300))
    log.close()
    assert index.path.stat().st_size == 299 * 8


def test_a_recovery_on_a_disk_too_full_for_an_index_keeps_it_in_memory(tmp_path, monkeypatch):
    config = LogConfig(index_interval_bytes=1)
    killed = open_log(tmp_path, config)
    for _ in range(3):
        killed.append_as_leader(batch(b"a"), 0)

    def full(_index):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(IndexFile, "_open", full)
        log = open_log(tmp_path, config, clean=False)
        index = log.segments[0].offset_index.file
        assert len(contents(log)) == 3
        assert (len(index), index.exists) == (2, False)
    log.close()
    assert index.path.stat().st_size == 2 * 8


def test_reading_outside_the_log_is_out_of_range(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    assert code_of(log.reader.read, 2, 100, end_offset=1, min_one_batch=True) is Errors.OFFSET_OUT_OF_RANGE
    assert code_of(log.reader.read, -1, 100, end_offset=1, min_one_batch=True) is Errors.OFFSET_OUT_OF_RANGE
    assert log.reader.read(1, 100, end_offset=1, min_one_batch=True).region is None


def test_reads_end_at_the_bound(tmp_path):
    log = open_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value), 0)
    assert log.reader.read(0, 9999, end_offset=0, min_one_batch=True).region is None
    result = log.reader.read(0, 9999, end_offset=2, min_one_batch=True)
    assert result.size == log.size_bytes // 3 * 2


def test_a_bound_inside_a_batch_excludes_it(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a", b"b", b"c"), 0)
    assert log.reader.read(0, 9999, end_offset=2, min_one_batch=True).region is None


def test_the_first_batch_is_whole_when_asked_and_reported_when_not(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(bytes(500)), 0)
    log.append_as_leader(batch(b"b"), 0)
    whole = log.reader.read(0, 10, end_offset=2, min_one_batch=True)
    assert whole.size == next(iter_batches(log.read_bytes(0, 9999))).size_bytes
    cut = log.reader.read(0, 10, end_offset=2, min_one_batch=False)
    assert (cut.region, cut.size, cut.first_batch_incomplete) == (None, 0, True)


def test_a_read_starts_with_the_batch_that_holds_the_offset(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a", b"b", b"c"), 0)
    result = log.reader.read(2, 9999, end_offset=3, min_one_batch=True)
    assert (result.base_offset, result.size) == (0, log.size_bytes)


def test_a_region_outlives_the_segments_deletion(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"kept"), 0)
    region = log.reader.read(0, 9999, end_offset=1, min_one_batch=True).region
    log.truncate_fully_and_start_at(5)
    assert read_records(os.pread(region.file.fileno(), region.size, region.position))[0].value == b"kept"


def test_of_what_a_full_response_has_no_room_for_nothing_is_read(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    monkeypatch.setattr(look_ups, "slice_of", None)
    found = log.reader.read(0, 0, end_offset=1, min_one_batch=False)
    assert found.region is None
    assert found.first_batch_incomplete
    with pytest.raises(KafkaError, match=r"offset 2 is not in 0\.\.1"):
        log.reader.read(2, 0, end_offset=1, min_one_batch=False)


def test_old_offsets_are_found_over_many_segments(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=2000, index_interval_bytes=150))
    for n in range(400):
        log.append_as_leader(batch(b"%d" % n), 0)
    assert log.num_segments > 10
    for offset in range(400):
        result = log.reader.read(offset, 1, end_offset=400, min_one_batch=True)
        assert result.base_offset == offset


def test_segments_roll_by_time_of_the_records(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_ms=1000))
    log.append_as_leader(batch(b"a", timestamp=5000), 0)
    log.append_as_leader(batch(b"b", timestamp=6000), 0)
    assert log.num_segments == 1
    log.append_as_leader(batch(b"c", timestamp=6001), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_roll_when_an_index_is_full(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_index_bytes=80, index_interval_bytes=1))
    for n in range(60):
        log.append_as_leader(batch(b"a", timestamp=1000 + n), 0)
    assert log.num_segments > 5
    assert len(contents(log)) == 60


def test_segments_roll_before_relative_offsets_overflow(tmp_path):
    log = open_log(tmp_path)
    log.append_as_follower(memoryview(build_batch([Record(None, b"a", (), 1)])))
    far = (1 << 31) + 5
    log.append_as_follower(memoryview(build_batch([Record(None, b"b", (), 1)], base_offset=far)))
    assert [segment.base_offset for segment in log.segments] == [0, 1] or log.num_segments == 2
    assert contents(log) == [(0, b"a"), (far, b"b")]


def test_an_empty_log_begins_where_its_first_fetched_batch_does(tmp_path):
    log = open_log(tmp_path)
    far = (1 << 33) + 5
    log.append_as_follower(memoryview(build_batch([Record(None, b"b", (), 1)], base_offset=far)))
    assert [segment.base_offset for segment in log.segments] == [far]
    assert contents(log) == [(far, b"b")]


def test_a_follower_takes_batches_verbatim(tmp_path):
    leader, follower = open_log(tmp_path / "l"), open_log(tmp_path / "f")
    for n in range(5):
        leader.append_as_leader(batch(b"%d" % n, compression="zstd"), n // 2)
    data = leader.read_bytes(0, 1 << 20)
    info = follower.append_as_follower(memoryview(bytes(data) + bytes(data)[:40]))
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 4, 5)
    assert bytes(follower.read_bytes(0, 1 << 20)) == bytes(data)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries


def test_a_follower_refuses_damaged_and_misplaced_batches(tmp_path):
    log = open_log(tmp_path)
    good = build_batch([Record(None, b"a", (), 1)], base_offset=3)
    log.append_as_follower(memoryview(good))
    assert code_of(log.append_as_follower, memoryview(good)) is Errors.OFFSET_OUT_OF_RANGE
    bad = bytearray(build_batch([Record(None, b"a", (), 1)], base_offset=4))
    bad[65] ^= 1
    assert code_of(log.append_as_follower, memoryview(bad)) is Errors.CORRUPT_MESSAGE
    bad[8:12] = b"\0\0\0\0"
    assert code_of(log.append_as_follower, memoryview(bad)) is Errors.CORRUPT_MESSAGE
    # Were it taken for cut short, it would be asked for without end.
    assert code_of(log.append_as_follower, memoryview(good)[:30]) is Errors.CORRUPT_MESSAGE
    assert log.log_end_offset == 4


def test_a_followers_fetch_larger_than_a_segment_is_spread(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=300))
    data = b"".join(build_batch([Record(None, bytes(50), (), 1)], base_offset=n) for n in range(20))
    log.append_as_follower(memoryview(data))
    assert log.num_segments > 5
    assert [offset for offset, _ in contents(log)] == list(range(20))


def test_timestamps_are_found_to_the_record(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=100))
    for n in range(50):
        records = [Record(None, b"x", (), 10 * n + k) for k in range(3)]
        log.append_as_leader(memoryview(build_batch(records, compression="gzip")), 2)
    for timestamp, offset in ((0, 0), (1, 1), (3, 3), (10, 3), (251, 76), (492, 149)):
        found = log.offset_for_timestamp(timestamp)
        assert (found.offset, found.leader_epoch) == (offset, 2)
    assert log.offset_for_timestamp(493) is None
    assert log.offset_for_timestamp(-2).offset == 0
    assert log.offset_for_timestamp(-1).offset == 150
    assert log.offset_for_timestamp(-3)[:2] == (492, 149)


def test_max_timestamp_is_the_first_record_that_bears_it(tmp_path):
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(-3) is None
    for timestamp in (5, 9, 7, 9):
        log.append_as_leader(batch(b"a", timestamp=timestamp), 0)
    assert log.offset_for_timestamp(-3)[:2] == (9, 1)


def test_flush_messages_asks_for_a_sync_and_nothing_counts_as_committed_before_it(tmp_path):
    log = open_log(tmp_path, LogConfig(flush_messages=3))
    log.append_as_leader(batch(b"a", b"b"), 0)
    assert (log.recovery_point, log.durability.flush_due, log.durability.committable_end) == (0, False, 2)
    log.append_as_leader(batch(b"c"), 0)
    assert (log.recovery_point, log.durability.flush_due, log.durability.committable_end) == (0, True, 0)
    log.flush()
    assert (log.recovery_point, log.durability.flush_due, log.durability.committable_end) == (3, False, 3)


def test_a_log_that_lost_what_waited_for_a_sync_waits_no_more(tmp_path):
    log = open_log(tmp_path, LogConfig(flush_messages=1))
    log.append_as_leader(batch(b"a"), 0)
    log.flush()
    log.append_as_leader(batch(b"b"), 0)
    log.truncate_to(1)
    assert log.durability.committable_end == 1


def test_a_failed_sync_is_an_error_and_does_not_move_the_recovery_point(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)

    def fail(_fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    assert code_of(log.flush) is Errors.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0


def test_a_closed_log_takes_no_appends(tmp_path):
    log = open_log(tmp_path)
    log.close()
    assert code_of(log.append_as_leader, batch(b"a"), 0) is Errors.KAFKA_STORAGE_ERROR


def test_the_high_watermark_stays_between_start_and_end(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    log.high_watermark = 99
    assert log.high_watermark == 1
    log.high_watermark = -5
    assert log.high_watermark == 0


def test_readers_beside_appends_rolls_and_truncations_see_only_whole_batches(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=4000, index_interval_bytes=200))
    stop = threading.Event()
    problems: list[object] = []

    def read() -> None:
        offset = 0
        while not stop.is_set():
            try:
                end = log.log_end_offset
                result = log.reader.read(min(offset, end), 2000, end_offset=end, min_one_batch=True)
            except KafkaError:
                offset = 0
                continue
            if result.region is None:
                offset = max(0, end - 30)
                continue
            data = os.pread(result.region.file.fileno(), result.region.size, result.region.position)
            headers = list(iter_batches(data))
            # A truncation may have cut the file since; but what is there must be batches, in order.
            if headers and not offset - 5 <= headers[0].base_offset <= offset + 5:
                problems.append((offset, headers[0]))
            offset = headers[-1].next_offset if headers else 0

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(1500):
        log.append_as_leader(batch(b"v%d" % n, b"w"), 0)
        if n % 50 == 49:
            log.truncate_to(log.log_end_offset - 6)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []


def test_a_segment_shows_what_it_is(tmp_path):
    log = open_log(tmp_path)
    assert repr(log) == "<Log t-0 start=0 hw=0 end=0 segments=1>"
    assert isinstance(log.segments[0], Segment)
    assert repr(log.segments[0]) == "<Segment 00000000000000000000.log 0 bytes>"
