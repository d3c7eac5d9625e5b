"""Compaction: the last word on every key survives, and nothing else has to."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import shutil
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from crc32c import crc32c

from broker.config.log_config import LogConfig
from broker.log.checkpoints import CLEANER_CHECKPOINT, OffsetCheckpoint
from broker.log.cleaning import cleaner
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.io_pace import CleaningAborted, IoPace
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.log_manager import LogManager, LogManagerSettings
from broker.log.producers.producer_snapshot import snapshot_offsets
from broker.log.segments.batch_file import INT32_MAX
from broker.record.batch import Record, build_batch, iter_batches, read_records
from broker.record.records import LONG_MAX
from broker.record.validator import AppendOrigin
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.logs import TP, open_log, unlimited

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=2000,
    index_interval_bytes=100,
    delete_retention_ms=1000,
)
BIG_MAP = 1 << 24


def put(log, key: bytes, value: bytes | None, timestamp: int = 1000, **options) -> None:
    records = [Record(key, value, (), timestamp)]
    log.append_as_leader(
        memoryview(bytearray(build_batch(records, **options))), 0, origin=AppendOrigin.COORDINATOR
    )


def records_of(log) -> list[Record]:
    offset, found = log.log_start_offset, []
    while len(view := log.read_bytes(offset, 1 << 20)):
        found += read_records(view, include_control=True)
        offset = list(iter_batches(view))[-1].next_offset
    return found


def table(records) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def clean(log, *, first_dirty=0, now_ms=10_000, offsets=None):
    log.high_watermark = log.log_end_offset
    end = log.segments[-1].base_offset
    return clean_log(
        log,
        first_dirty,
        end,
        OffsetMap(BIG_MAP) if offsets is None else offsets,
        now_ms=now_ms,
        pace=unlimited(),
    )


def filled(tmp_path, keys=20, records=300, codec="none"):
    log = open_log(tmp_path, COMPACT)
    rng = random.Random(3)
    for n in range(records):
        key = b"k%d" % rng.randrange(keys)
        put(log, key, None if rng.random() < 0.1 else b"v%d" % n, timestamp=1000 + n, compression=codec)
    return log


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_compaction_keeps_the_table_and_the_offsets(tmp_path, codec):
    log = filled(tmp_path, codec=codec)
    before = records_of(log)
    active = log.segments[-1].base_offset
    stats = clean(log)
    after = records_of(log)
    assert table(after) == table(before)
    assert set(after) <= set(before)
    assert [r for r in after if r.offset >= active] == [r for r in before if r.offset >= active]
    below = [r.key for r in after if r.offset < active]
    assert len(below) == len(set(below))
    assert stats.end_offset == active
    assert stats.bytes_after < stats.bytes_before / 3
    clean(log)
    assert records_of(log) == after
    assert log.num_segments < 6  # neighbours that had become small were joined


def test_every_offset_can_be_read_from_after_compaction(tmp_path):
    log = filled(tmp_path)
    clean(log)
    after = records_of(log)
    for offset in range(log.log_end_offset):
        result = log.reader.read(offset, 1, end_offset=log.log_end_offset, min_one_batch=True)
        assert result.base_offset == next(r.offset for r in after if r.offset >= offset)
    for segment in log.segments:
        positions = {p: h.last_offset for p, h in segment.headers_from(0)}
        for relative, position in segment.offset_index.file:
            assert positions[position] == segment.base_offset + relative


def test_a_compacted_log_is_the_same_after_reopening_cleanly_and_not(tmp_path):
    log = filled(tmp_path)
    clean(log)
    expected = records_of(log)
    log.flush()
    log.close()
    assert records_of(open_log(tmp_path, COMPACT)) == expected
    assert records_of(open_log(tmp_path, COMPACT, clean=False)) == expected


def test_tombstones_stay_for_delete_retention_after_their_first_compaction(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, b"gone", b"v")
    put(log, b"gone", None)
    log.roll()
    put(log, b"x", b"active")
    clean(log, now_ms=10_000)
    assert [(r.key, r.value) for r in records_of(log)] == [(b"gone", None), (b"x", b"active")]
    header = next(iter_batches(log.read_bytes(0, 10_000)))
    assert header.delete_horizon_ms == 11_000
    assert read_records(log.read_bytes(0, 10_000))[0].timestamp == 1000
    clean(log, now_ms=10_999)
    assert len(records_of(log)) == 2
    clean(log, now_ms=11_000)
    assert [r.key for r in records_of(log)] == [b"x"]
    assert log.log_end_offset == 3


def test_tombstones_are_kept_for_ever_where_the_topic_says_so(tmp_path):
    log = open_log(tmp_path, dataclasses.replace(COMPACT, delete_retention_ms=LONG_MAX))
    put(log, b"gone", None)
    log.roll()
    put(log, b"x", b"active")
    for now_ms in (10_000, 1 << 62):
        clean(log, now_ms=now_ms)
        assert [r.key for r in records_of(log)] == [b"gone", b"x"]
    assert next(iter_batches(log.read_bytes(0, 10_000))).delete_horizon_ms == LONG_MAX


def test_timestamps_beyond_64_bits_are_as_javas_before_and_after_a_compaction(tmp_path):
    """Kafka takes such a batch where it need not be looked into, and its sums wrap."""
    batch = bytearray(build_batch([Record(b"a", b"1", timestamp=0), Record(b"b", b"2", timestamp=5)]))
    struct.pack_into(">qq", batch, 27, LONG_MAX, LONG_MAX)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    assert [record.timestamp for record in read_records(memoryview(batch))] == [LONG_MAX, 4 - LONG_MAX - 1]
    log = open_log(tmp_path, COMPACT)
    log.append_as_follower(memoryview(batch))
    put(log, b"b", b"3")
    log.roll()
    put(log, b"x", b"active")
    clean(log)
    first = records_of(log)[0]
    assert (first.key, first.timestamp) == (b"a", LONG_MAX)


def test_segments_are_joined_as_far_as_an_index_can_have_their_offsets(tmp_path):
    """Offsets in an index are relative to the segment's first, in 31 bits."""
    log = open_log(tmp_path, COMPACT)
    put(log, b"a", b"1")
    log.append_as_follower(
        memoryview(build_batch([Record(b"b", b"2", (), 1000)], base_offset=INT32_MAX - 2, leader_epoch=0))
    )
    log.roll()
    for key in (b"c", b"d", b"e", b"f"):
        put(log, key, b"3")
    log.roll()
    put(log, b"active", b"4")
    before = records_of(log)
    clean(log)
    assert records_of(log) == before
    assert [segment.base_offset for segment in log.segments] == [0, INT32_MAX - 1, INT32_MAX + 3]


def test_a_small_map_cleans_as_far_as_it_reaches(tmp_path):
    log = filled(tmp_path, keys=200)
    before = table(records_of(log))
    stats = clean(log, offsets=OffsetMap(180 * 12))
    assert 0 < stats.end_offset < log.segments[-1].base_offset
    assert table(records_of(log)) == before
    while stats.end_offset < log.segments[-1].base_offset:
        stats = clean(log, first_dirty=stats.end_offset, offsets=OffsetMap(180 * 50))
    assert table(records_of(log)) == before


def test_the_last_batch_of_a_producer_stays_for_its_sequence(tmp_path):
    log = open_log(tmp_path, COMPACT)
    for n in range(3):
        put(log, b"k", b"%d" % n, producer_id=9, producer_epoch=0, base_sequence=n)
    put(log, b"k", b"other")
    log.roll()
    put(log, b"x", b"active")
    clean(log)
    assert [(r.key, r.value) for r in records_of(log)] == [(b"k", b"other"), (b"x", b"active")]
    header = next(iter_batches(log.read_bytes(0, 10_000)))
    assert (header.producer_id, header.base_sequence, header.record_count) == (9, 2, 0)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, COMPACT, clean=False)
    assert again.producer_state.producers[9].last_sequence == 2


def test_segments_that_were_joined_leave_no_snapshots_of_their_producers(tmp_path):
    log = open_log(tmp_path, COMPACT)
    for n in range(200):
        put(log, b"k%d" % (n % 5), b"v%d" % n, producer_id=9, producer_epoch=0, base_sequence=n)
    before = snapshot_offsets(log.dir)
    clean(log)
    clean(log)  # joins what the first made small
    bases = [segment.base_offset for segment in log.segments]
    assert snapshot_offsets(log.dir) == [offset for offset in bases if offset in before]
    assert len(bases) < len(before) / 3
    assert open_log(tmp_path, COMPACT, clean=False).producer_state.producers[9].last_sequence == 199


def test_records_of_aborted_transactions_neither_stay_nor_shadow(tmp_path):
    log = open_log(tmp_path, COMPACT)
    marker = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    put(log, b"k", b"committed", **marker, base_sequence=0)
    put(log, b"\0\0\0\1", b"\0\0\0\0\0\1", **marker, control=True)
    put(log, b"k", b"aborted", **marker, base_sequence=1)
    put(log, b"\0\0\0\0", b"\0\0\0\0\0\1", **marker, control=True)
    log.roll()
    put(log, b"x", b"active")
    clean(log)
    data = [r for r in records_of(log) if r.key in (b"k", b"x")]
    assert [(r.key, r.value) for r in data] == [(b"k", b"committed"), (b"x", b"active")]


def test_compaction_gives_up_when_the_log_was_truncated_meanwhile(tmp_path):
    log = filled(tmp_path)
    before = records_of(log)
    calls = []

    def stopped() -> bool:
        calls.append(1)
        if len(calls) == 100:
            log.truncate_to(log.log_end_offset - 1)
        return False

    with pytest.raises(CleaningAborted):
        clean_log(
            log, 0, log.segments[-1].base_offset, OffsetMap(BIG_MAP), now_ms=10_000, pace=unlimited(stopped)
        )
    assert records_of(log) == before[:-1]
    assert not list((tmp_path / "t-0").glob("*.swap"))
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_a_compaction_that_may_still_be_given_up_leaves_nothing_for_a_load_to_finish(tmp_path, monkeypatch):
    """After a kill, a load would put it in place of what was truncated and appended meanwhile."""
    log = filled(tmp_path)
    real, alone = os.rename, []

    def is_held() -> bool:
        if log.lock.acquire(blocking=False):
            log.lock.release()
            return False
        return True

    def rename(source, target):
        if str(target).endswith(".log.swap"):
            with ThreadPoolExecutor(1) as other:
                alone.append(other.submit(is_held).result())
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    clean(log)
    assert alone
    assert all(alone)


def test_compaction_stops_when_the_broker_does(tmp_path):
    log = filled(tmp_path)
    with pytest.raises(CleaningAborted):
        clean_log(
            log,
            0,
            log.segments[-1].base_offset,
            OffsetMap(BIG_MAP),
            now_ms=10_000,
            pace=unlimited(lambda: True),
        )


def test_compaction_keeps_to_its_pace(tmp_path):
    """So long that it ends only when the limit is lifted."""
    log = filled(tmp_path)
    pace = IoPace(1.0, SYSTEM_CLOCK, lambda: False)
    done = threading.Event()

    def run() -> None:
        clean_log(log, 0, log.segments[-1].base_offset, OffsetMap(BIG_MAP), now_ms=10_000, pace=pace)
        done.set()

    log.high_watermark = log.log_end_offset
    cleaner = threading.Thread(target=run, daemon=True)
    cleaner.start()
    assert not done.wait(0.3)
    pace.limit(math.inf)
    assert done.wait(30)
    cleaner.join()


def test_a_pace_counts_reads_and_writes_and_gives_a_second_in_advance():
    clock = ManualClock()
    pace = IoPace(1_000, clock, stopped=lambda: False)
    pace.spend(600)
    pace.spend(400)
    done = threading.Event()
    spender = threading.Thread(target=lambda: (pace.spend(10), done.set()), daemon=True)
    spender.start()
    assert not done.wait(0.1)
    clock.now_ms += 10
    assert done.wait(30)
    spender.join()


@pytest.mark.parametrize("crashed_after", ["cleaned", "swap", "swap_and_some_deleted"])
def test_a_crash_at_any_point_of_the_swap_loses_nothing(tmp_path, crashed_after):
    log = filled(tmp_path / "a")
    expected = table(records_of(log))
    log.flush()
    log.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    log = open_log(tmp_path / "a", COMPACT)
    clean(log)
    cleaned = log.segments[0]
    directory = tmp_path / "b" / "t-0"
    suffix = ".cleaned" if crashed_after == "cleaned" else ".swap"
    shutil.copy(cleaned.path(".log"), directory / (cleaned.path(".log").name + suffix))
    shutil.copy(cleaned.path(".index"), directory / (cleaned.path(".index").name + suffix))
    if crashed_after == "swap_and_some_deleted":
        for name in ("log", "index"):
            first = directory / f"{0:020d}.{name}"
            first.rename(first.with_name(first.name + ".deleted"))
    for is_clean in (False, True):
        again = open_log(tmp_path / "b", COMPACT, clean=is_clean)
        assert table(records_of(again)) == expected
        again.close()
        assert not [p for p in directory.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")]


def test_the_manager_cleans_the_dirtiest_log_and_remembers_how_far(tmp_path):
    clock = ManualClock(50_000)
    settings = LogManagerSettings()
    manager = LogManager([str(tmp_path)], COMPACT, clock=clock, settings=settings)
    manager.startup()
    log = manager.get_or_create(TP)
    for n in range(200):
        put(log, b"k%d" % (n % 5), b"v%d" % n)
    assert manager.cleaner.run() == 0  # nothing is known to be replicated yet
    log.high_watermark = log.log_end_offset
    assert manager.cleaner.run() == 1
    assert manager.cleaner.run() == 0
    checkpoint = OffsetCheckpoint(tmp_path, CLEANER_CHECKPOINT)
    assert checkpoint.read() == {TP: log.segments[-1].base_offset}
    manager.shutdown()


def test_what_comes_after_a_truncation_is_compacted_anew(tmp_path):
    """An unclean election took records that were compacted. Among those that come instead a key is deleted."""
    clock = ManualClock(50_000)
    manager = LogManager([str(tmp_path)], COMPACT, clock=clock)
    manager.startup()
    log = manager.get_or_create(TP)
    put(log, b"deleted", b"v")

    def fill_and_clean(records: int) -> None:
        for n in range(records):
            put(log, b"k%d" % (n % 5), b"v%d" % n)
        log.high_watermark = log.log_end_offset
        assert manager.cleaner.run() == 1

    fill_and_clean(100)
    log.truncate_to(1)
    assert log.log_end_offset == 1
    put(log, b"deleted", None)
    fill_and_clean(500)
    clock.now_ms += COMPACT.delete_retention_ms
    fill_and_clean(1000)
    assert b"deleted" not in table(records_of(log))
    manager.shutdown()


def test_a_truncation_right_after_a_compaction_is_not_forgotten(tmp_path, monkeypatch):
    manager = LogManager([str(tmp_path)], COMPACT, clock=ManualClock(50_000))
    manager.startup()
    log = manager.get_or_create(TP)
    for n in range(100):
        put(log, b"k%d" % (n % 5), b"v%d" % n)
    log.high_watermark = log.log_end_offset
    real = cleaner.clean_log

    def clean_then_truncate(*arguments, **named):
        stats = real(*arguments, **named)
        log.truncate_to(1)
        return stats

    monkeypatch.setattr(cleaner, "clean_log", clean_then_truncate)
    assert manager.cleaner.run() == 1
    assert OffsetCheckpoint(tmp_path, CLEANER_CHECKPOINT).read() == {}
    manager.shutdown()


def test_a_log_that_cannot_be_compacted_for_an_unknown_reason_leaves_the_others_their_turn(
    tmp_path, monkeypatch
):
    manager = LogManager([str(tmp_path)], COMPACT, clock=ManualClock(50_000))
    manager.startup()
    logs = [manager.get_or_create(TopicPartition(topic, 0)) for topic in ("bad", "good")]
    for log, records in zip(logs, (400, 200), strict=True):
        for n in range(records):
            put(log, b"k%d" % (n % 5), b"v%d" % n)
        log.high_watermark = log.log_end_offset

    clean_log_of_the_broker = clean_log

    def failing(log, *args, **kwargs):
        if log is logs[0]:
            raise struct.error("int too large to convert")
        return clean_log_of_the_broker(log, *args, **kwargs)

    monkeypatch.setattr("broker.log.cleaning.cleaner.clean_log", failing)
    assert manager.cleaner.run() == 2
    assert [log.is_cleanable for log in logs] == [False, True]
    assert manager.cleaner.run() == 0
    manager.shutdown()


def test_logs_with_delete_policy_and_young_segments_are_left_alone(tmp_path):
    clock = ManualClock(50_000)
    lagging = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=2000, min_compaction_lag_ms=1_000_000
    )
    configs = {"plain": LogConfig(segment_bytes=2000), "young": lagging}
    manager = LogManager([str(tmp_path)], COMPACT, configs.__getitem__, clock=clock)
    manager.startup()
    for topic in configs:
        log = manager.get_or_create(TopicPartition(topic, 0))
        for n in range(100):
            put(log, b"k", b"v%d" % n, timestamp=49_000)
        log.high_watermark = log.log_end_offset
    assert manager.cleaner.run() == 0
    manager.shutdown()
