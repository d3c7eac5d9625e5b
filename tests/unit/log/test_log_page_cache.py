"""What of a log is in the page cache, and what may wait for the disk."""

from __future__ import annotations

import os

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.record.header import HEADER_BYTES
from broker.utils.file_region import FileRegion
from tests.support.clocks import ManualClock
from tests.support.logs import batch, open_log


def test_just_written_data_is_in_the_page_cache(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(bytes(5000)), 0)
    assert log.reader.is_cached(log.reader.read(0, 9999, end_offset=1, min_one_batch=True).region)


def test_what_left_the_page_cache_can_be_brought_in(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(os.urandom(900_000)), 0)
    region = log.reader.read(0, 9 << 20, end_offset=1, min_one_batch=True).region
    fd = region.file.fileno()
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if look_ups.is_cached(region):
        pytest.skip("this file system keeps its pages")
    log.reader.bring_in(region)
    pages = range(region.position, region.position + region.size, 4096)
    assert all(look_ups.is_cached(FileRegion(region.file, page, 1)) for page in pages)


def test_a_region_that_was_cut_off_meanwhile_is_brought_in_as_far_as_it_goes(tmp_path):
    log = open_log(tmp_path)
    log.append_as_leader(batch(bytes(50_000)), 0)
    region = log.reader.read(0, 99_999, end_offset=1, min_one_batch=True).region
    log.truncate_fully_and_start_at(0)
    log.reader.bring_in(region)


def test_the_kernel_is_not_asked_whether_it_still_has_what_was_just_written(tmp_path, monkeypatch):
    clock = ManualClock()
    log = open_log(tmp_path, clock=clock)

    def read_at(offset):
        return log.reader.read(offset, 9999, end_offset=offset + 1, min_one_batch=True).region

    log.append_as_leader(batch(b"old"), 0)
    clock.now_ms += 1_500
    log.append_as_leader(batch(b"new"), 0)
    monkeypatch.setattr(look_ups, "is_cached", lambda _region: False)
    assert [log.reader.is_cached(read_at(offset)) for offset in (0, 1)] == [False, True]
    clock.now_ms += 2_500
    assert not log.reader.is_cached(read_at(1))
    clock.now_ms -= 60_000
    assert not log.reader.is_cached(read_at(1)), "the clock was set back"
    clock.now_ms += 60_000
    log.roll()
    log.append_as_leader(batch(b"next"), 0)
    assert [log.reader.is_cached(read_at(offset)) for offset in (1, 2)] == [False, True]


def test_finding_a_batch_may_wait_for_the_disk_unless_its_headers_and_index_are_in_memory(
    tmp_path, monkeypatch
):
    clock = ManualClock()
    log = open_log(tmp_path, LogConfig(index_interval_bytes=1), clock=clock)
    for _ in range(600):
        log.append_as_leader(batch(bytes(5_000)), 0)
    asked = []

    def is_cached(region):
        asked.append((region.position, region.position + region.size))
        return False

    monkeypatch.setattr(look_ups, "is_cached", is_cached)
    assert log.reader.may_wait(5, 600), "the index is not in memory"
    log.reader.read(5, 1, end_offset=600, min_one_batch=True)
    assert not log.reader.may_wait(5, 600), "all of it is fresh"
    assert not log.reader.may_wait(5, 9)
    assert not log.reader.may_wait(0, 600), "it lies before the index's first entry"
    assert asked == []
    clock.now_ms += 60_000
    size = log.size_bytes // 600
    assert log.reader.may_wait(5, 600)
    assert asked == [(5 * size, 6 * size + HEADER_BYTES)]
    asked.clear()
    assert not any(log.reader.may_wait(offset, 600) for offset in (-1, 599, 600, 601))
    assert not log.reader.may_wait(9, 9), "there is nothing to read"
    assert asked == []


def with_pairs(directory, first_bytes):
    """A log of 300 batches of two records, written long ago, with the beginning of its index in memory."""
    clock = ManualClock()
    log = open_log(directory, LogConfig(index_interval_bytes=1), clock=clock)
    for _ in range(300):
        log.append_as_leader(batch(bytes(first_bytes), b"its last record"), 0)
    log.reader.read(10, 1, end_offset=600, min_one_batch=True)
    clock.now_ms += 60_000
    return log


def test_the_header_behind_a_batch_counts_too_because_it_confirms_the_batch(tmp_path, monkeypatch):
    log = with_pairs(tmp_path, 5_000)
    size = log.size_bytes // 300
    asked = []

    def is_cached(region):
        asked.append((region.position, region.position + region.size))
        return True

    monkeypatch.setattr(look_ups, "is_cached", is_cached)
    assert not any(log.reader.may_wait(offset, 600) for offset in (10, 11, 597))
    behind = 6 * size + HEADER_BYTES
    assert asked == [(4 * size, behind), (5 * size, behind), (298 * size, 299 * size + HEADER_BYTES)]


@pytest.mark.parametrize("dropped", [4, 5, 6])
def test_each_of_the_three_headers_may_have_to_be_waited_for(tmp_path, monkeypatch, dropped):
    log = with_pairs(tmp_path, 50_000)
    begin = dropped * (log.size_bytes // 300)

    def is_cached(region):
        ends = (region.position, region.position + region.size - 1)
        return not any(begin <= position < begin + HEADER_BYTES for position in ends)

    monkeypatch.setattr(look_ups, "is_cached", is_cached)
    assert log.reader.may_wait(10, 600)
    assert not log.reader.may_wait(20, 600)


def test_finding_where_a_read_ends_may_wait_for_the_disk_as_well(tmp_path, monkeypatch):
    clock = ManualClock()
    log = open_log(tmp_path, LogConfig(index_interval_bytes=1), clock=clock)
    for _ in range(600):
        log.append_as_leader(batch(bytes(5_000)), 0)
    log.reader.read(5, 1, end_offset=9, min_one_batch=True)
    clock.now_ms += 60_000
    far = 100 * log.size_bytes // 600
    monkeypatch.setattr(look_ups, "is_cached", lambda region: region.position < far)
    assert [log.reader.may_wait(5, end_offset) for end_offset in (9, 101, 600)] == [False, True, False]


def test_readers_at_several_places_of_a_segment_keep_their_parts_of_its_index(tmp_path):
    log = open_log(tmp_path, LogConfig(index_interval_bytes=1))
    for _ in range(3_000):
        log.append_as_leader(batch(b"small"), 0)
    places = (5, 900, 1_800, 2_700)
    for offset in places:
        log.reader.read(offset, 1, end_offset=3_000, min_one_batch=True)
    assert not any(log.reader.may_wait(offset, 3_000) for offset in places)


def test_headers_far_apart_may_wait_for_the_disk(tmp_path):
    log = open_log(tmp_path, LogConfig(index_interval_bytes=1 << 20))
    for _ in range(600):
        log.append_as_leader(batch(b"small"), 0)
    assert log.reader.may_wait(5, 600)
