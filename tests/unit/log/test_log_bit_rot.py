"""One flipped bit in a log's files: it is noticed or does no harm, and takes at most what it hit."""

from __future__ import annotations

import errno
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.log_manager import LogManager
from broker.log.segments.batch_walk import DamagedError
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch, iter_batches, read_records
from tests.support.clocks import ManualClock
from tests.support.logs import TP, open_log, unlimited
from tests.unit.log.test_log_cleaner import put

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}))
BATCHES = 40


def filled(directory: Path, batches: int = BATCHES, config: LogConfig = CONFIG):
    log = open_log(directory, config)
    for n in range(batches):
        records = [Record(b"k%d" % n, b"v%d" % n * 20, (), 1000 + n)]
        log.append_as_leader(memoryview(bytearray(build_batch(records))), 0)
    log.high_watermark = log.log_end_offset
    log.flush()
    return log


def flip(path: Path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def readable(log) -> dict[int, bytes]:
    """Offsets and values that a reader gets who goes on behind each offset that is refused."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = first_batch(log, offset)
        found |= {record.offset: record.value for record in records if record.offset >= offset}
        offset = max(records[-1].offset + 1 if records else 0, offset + 1)
    return found


def first_batch(log, offset: int) -> list[Record]:
    """The records of the batch at ``offset``, none where it is refused."""
    try:
        return read_records(log.read_bytes(offset, 1))
    except KafkaError as error:
        if error.error_code is Errors.CORRUPT_MESSAGE:
            return []
        raise


def found_batches(log, offsets) -> list[memoryview | None]:
    """What a fetch gives at each offset, None where it is refused."""
    found: list[memoryview | None] = []
    for offset in offsets:
        try:
            found.append(log.read_bytes(offset, 1))
        except KafkaError:
            found.append(None)
    return found


def clean(log) -> None:
    clean_log(log, 0, log.segments[-1].base_offset, OffsetMap(1 << 20), now_ms=10_000, pace=unlimited())


ORIGINAL = {n: b"v%d" % n * 20 for n in range(BATCHES)}


def header_bits(log) -> list[tuple[Path, int, int]]:
    """Every bit of the third batch's header, by turns in a segment that is not the last and in the last."""
    segments = log.segments[1], log.segments[-1]
    thirds = [[position for position, _ in segment.headers_from(0)][2] for segment in segments]
    return [
        (segments[bit % 2].path(".log"), thirds[bit % 2] + byte, bit)
        for byte in range(61)
        for bit in range(8)
    ]


def test_compaction_refuses_a_segment_in_which_any_bit_of_a_header_is_wrong(tmp_path):
    log = filled(tmp_path)
    segment = log.segments[1]
    (position, hit), following = list(segment.headers_from(0))[2:4]
    sound = segment.path(".log").read_bytes()
    for byte in range(61):
        for bit in range(8):
            flip(segment.path(".log"), position + byte, bit)
            if 12 <= byte < 16:
                continue  # the leader epoch stands in no checksum, and compaction does not go by it
            with pytest.raises(KafkaError) as raised:
                clean(log)
            assert raised.value.error_code is Errors.CORRUPT_MESSAGE, (byte, bit)
            segment.path(".log").write_bytes(sound)
    clean(log)
    assert readable(log) == ORIGINAL
    assert hit.next_offset == following[1].base_offset


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_bit_in_any_header_takes_no_more_than_its_batch_and_is_told(tmp_path, capsys, clean_stop):
    log = filled(tmp_path / "sound")
    places = header_bits(log)
    log.close()
    for path, byte, bit in places:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "sound", copy)
        flip(copy / "t-0" / path.name, byte, bit)
        again = open_log(copy, CONFIG, clean=clean_stop, recovery_point=BATCHES)
        found = readable(again)
        assert found.items() <= ORIGINAL.items(), (path.name, byte, bit)
        assert len(found) >= BATCHES - 1, (path.name, byte, bit, again.log_end_offset)
        # Of what the walk gives all the same the reader finds the checksum wrong, as a consumer does.
        is_told = "log_damaged" in capsys.readouterr().out
        batches = [
            batch for batch in found_batches(again, ORIGINAL.keys() - found.keys()) if batch is not None
        ]
        assert is_told or len(found) == BATCHES or batches, (path.name, byte, bit)


def test_few_index_entries_do_not_let_a_bit_take_more(tmp_path):
    """Whoever is looked for behind a batch that claims too much is found by that one's checksum."""
    config = replace(CONFIG, index_interval_bytes=1 << 20)
    log = filled(tmp_path / "sound")
    places = [place for place in header_bits(log) if place[2] % 2 == 0]
    log.close()
    for path, byte, bit in places:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "sound", copy)
        for index in (copy / "t-0").glob("*.index"):
            index.unlink()
        flip(copy / "t-0" / path.name, byte, bit)
        again = open_log(copy, config, clean=False, recovery_point=BATCHES)
        assert len(readable(again)) >= BATCHES - 1, (path.name, byte, bit)


def test_recovery_says_what_it_finds_damaged(tmp_path, capsys):
    """Of what no sync has vouched for: the log ends before it, and that is told too."""
    log = filled(tmp_path / "sound")
    places = header_bits(log)[::5]
    log.close()
    for path, byte, bit in places:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "sound", copy)
        flip(copy / "t-0" / path.name, byte, bit)
        capsys.readouterr()
        again = open_log(copy, CONFIG, clean=False, recovery_point=0)
        assert again.log_end_offset < BATCHES, (path.name, byte, bit)
        assert "log_tail_truncated" in capsys.readouterr().out, (path.name, byte, bit)


@pytest.mark.parametrize("clean_stop", [True, False])
def test_no_bit_in_an_index_of_aborted_transactions_brings_their_records_back(tmp_path, clean_stop):
    log = open_log(tmp_path / "sound", CONFIG)
    marker = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    put(log, b"k", b"committed", **marker, base_sequence=0)
    put(log, b"\0\0\0\1", b"\0\0\0\0\0\1", **marker, control=True)
    put(log, b"k", b"aborted", **marker, base_sequence=1)
    put(log, b"\0\0\0\0", b"\0\0\0\0\0\1", **marker, control=True)
    log.roll()
    put(log, b"x", b"active")
    log.flush()
    (index,) = (tmp_path / "sound/t-0").glob("*.txnindex")
    size = index.stat().st_size
    log.close()
    outcomes = set()
    for byte in range(size):
        for bit in range(8):
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(tmp_path / "sound", copy)
            flip(copy / "t-0" / index.name, byte, bit)
            again = open_log(copy, CONFIG, clean=clean_stop, recovery_point=5)
            again.high_watermark = again.log_end_offset
            try:
                clean(again)
            except DamagedError:
                outcomes.add("refused")
                continue
            outcomes.add("harmless")
            values = [
                record.value for record in read_records(again.read_bytes(0, 1 << 20)) if record.key == b"k"
            ]
            assert values == [b"committed"], (byte, bit)
    assert outcomes == {"refused", "harmless"}


def test_a_directory_that_cannot_keep_checksums_is_told_of_at_the_start(tmp_path, capsys, monkeypatch):
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    for works in (True, False):
        if not works:
            monkeypatch.setattr(os, "setxattr", unsupported)
        manager = LogManager([str(tmp_path / "one"), str(tmp_path / "two")], CONFIG)
        manager.startup()
        manager.shutdown()
        told = [line for line in capsys.readouterr().out.splitlines() if "checksums_off" in line]
        assert len(told) == (0 if works else 2)
        assert works or (str(tmp_path / "one") in told[0] and str(tmp_path / "two") in told[1])


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_bit_in_any_index_costs_no_record(tmp_path, clean_stop):
    log = filled(tmp_path / "sound")
    log.close()
    files = sorted([*(tmp_path / "sound/t-0").glob("*index")])
    rng = random.Random(7)
    assert len(files) == 6
    for path in files:
        for byte in range(path.stat().st_size):
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(tmp_path / "sound", copy)
            flip(copy / "t-0" / path.name, byte, rng.randrange(8))
            again = open_log(copy, CONFIG, clean=clean_stop, recovery_point=BATCHES)
            assert again.log_end_offset == BATCHES, (path.name, byte)
            assert readable(again) == ORIGINAL, (path.name, byte)
            for n in range(0, BATCHES, 7):
                found = again.offset_for_timestamp(1000 + n)
                assert (found.offset, found.timestamp) == (n, 1000 + n), (path.name, byte)
            assert again.segments[0].largest_timestamp < again.segments[1].largest_timestamp, (
                path.name,
                byte,
            )


def test_a_damaged_place_is_told_once_and_counted(tmp_path, capsys):
    log = filled(tmp_path)
    segment = log.segments[1]
    position = [position for position, _ in segment.headers_from(0)][2]
    flip(segment.path(".log"), position + 9, 7)
    for _ in range(3):
        with pytest.raises(DamagedError):
            log.reader.read(segment.base_offset + 2, 1000, end_offset=BATCHES, min_one_batch=True)
    assert capsys.readouterr().out.count("log_damaged") == 1
    assert len(segment.damages) == 1


def test_the_manager_leaves_a_damaged_log_alone_until_its_topic_is_made_anew(tmp_path):
    manager = LogManager([str(tmp_path)], CONFIG, clock=ManualClock(50_000))
    manager.startup()
    for hurt in (True, False):
        log = manager.get_or_create(TP)
        for n in range(100):
            records = [Record(b"k%d" % (n % 5), b"v%d" % n * 20, (), 1000 + n)]
            log.append_as_leader(memoryview(bytearray(build_batch(records))), 0)
        log.high_watermark = log.log_end_offset
        log.flush()
        log_dir = next(iter(manager.dirs))
        if hurt:
            size = log.size_bytes
            flip(log.segments[0].path(".log"), 200, 3)
            assert manager.cleaner.run() == 1
            assert manager.cleaner.uncleanable_in(log_dir) == [log]
            assert manager.cleaner.run() == 0
            assert log.size_bytes == size
            manager.delete_async(TP)
        else:
            assert manager.cleaner.uncleanable_in(log_dir) == []
            manager.cleaner.run()
            assert log.size_bytes < size
    manager.shutdown()


def test_a_follower_takes_what_is_sound_before_a_damaged_batch_and_refuses_that_one(tmp_path):
    leader = filled(tmp_path / "leader")
    sound = leader.read_bytes(0, 1 << 20, end_offset=5)
    third = sum(header.size_bytes for header in list(iter_batches(sound))[:2])
    for byte in range(61):
        for bit in range(8):
            if (byte, bit) == (12, 7):
                continue  # a negative epoch is none, as of a leader that knows none
            data = bytearray(sound)
            data[third + byte] ^= 1 << bit
            follower = open_log(tmp_path / f"{byte}.{bit}", CONFIG)
            follower.append_as_follower(memoryview(bytearray(data)), 0)
            assert (follower.log_end_offset, readable(follower)) == (2, {0: ORIGINAL[0], 1: ORIGINAL[1]}), (
                byte,
                bit,
            )
            if byte >= 8 or bit == 7:  # of a first batch's offset the leader has made sure
                with pytest.raises(KafkaError):
                    follower.append_as_follower(memoryview(data[third:]), 0)


def test_a_leader_gives_no_batch_whose_offset_another_contradicts(tmp_path):
    log = filled(tmp_path)
    segment = log.segments[1]
    position, hit = list(segment.headers_from(0))[2]
    flip(segment.path(".log"), position + 7, 0)
    for offset in (hit.base_offset, hit.base_offset ^ 1):
        assert hit.base_offset ^ 1 not in [record.offset for record in first_batch(log, hit.base_offset)], (
            offset
        )


def test_recovery_cuts_off_two_batches_that_contradict_each_other(tmp_path):
    """Of what no sync has vouched for, nothing is kept whose offset may be another."""
    log = filled(tmp_path)
    last = log.segments[-1]
    log.close()
    flip(last.path(".log"), 7, 6)
    again = open_log(tmp_path, CONFIG, clean=False, recovery_point=0)
    assert again.log_end_offset == last.base_offset
    assert readable(again) == {n: ORIGINAL[n] for n in range(last.base_offset)}
    assert again.segments[-1].largest_timestamp >= 0


def test_a_last_batch_with_a_wrong_offset_is_not_among_what_is_read_to_the_end(tmp_path: Path) -> None:
    """Its checksum does not cover its offset. Who read on behind it would begin again, without end."""
    config = replace(CONFIG, segment_bytes=1 << 20)
    filled(tmp_path, config=config).close()
    log = open_log(tmp_path, config)
    log.high_watermark = log.log_end_offset
    (path,) = tmp_path.rglob("*.log")
    *_, last = batches = list(iter_batches(memoryview(path.read_bytes())))
    assert last.base_offset == BATCHES - 1
    flip(path, sum(header.size_bytes for header in batches[:-1]) + 7, 5)
    read = read_records(log.read_bytes(BATCHES - 5, 1 << 20))
    # Of the two that contradict each other the first may be damaged as well.
    assert [record.offset for record in read] == list(range(BATCHES - 5, BATCHES - 2))
    with pytest.raises(KafkaError) as refused:
        log.read_bytes(BATCHES - 1, 1 << 20)
    assert refused.value.error_code is Errors.CORRUPT_MESSAGE
    log.close()
