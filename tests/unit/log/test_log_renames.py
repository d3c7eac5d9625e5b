"""Files that get other names, or go, while others come: nobody waits for that, and it hits no other log's files."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from broker.config.log_config import LogConfig
from broker.log.checkpoints import CLEANER_CHECKPOINT, OffsetCheckpoint
from broker.log.cleaning import cleaner
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.log.segments.segment import Segment
from broker.record.batch import Record, build_batch
from broker.utils.scheduler import KafkaScheduler
from rig.wait import wait_until
from tests.support.gate import WAIT_S, Gate
from tests.support.logs import TP, batch, contents, managed, open_log

SHORT = LogConfig(segment_bytes=1000, retention_bytes=1500, file_delete_delay_ms=0)
COMPACT = LogConfig(segment_bytes=1000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
FIRST = f"{0:020d}.log"


def keyed(key: bytes) -> memoryview:
    return memoryview(bytearray(build_batch([Record(key, b"v" * 200, timestamp=1000)])))


def fill(log: Log, batches: int = 12) -> None:
    """Segments of about three batches, all committed; a few keys come again and again."""
    chance = random.Random(1)
    for _ in range(batches):
        log.append_as_leader(keyed(b"k%d" % chance.randrange(3)), 0)
    log.high_watermark = log.log_end_offset


def made_anew(manager: LogManager) -> Log:
    manager.delete_async(TP)
    log = manager.get_or_create(TP, None)
    log.append_as_leader(keyed(b"new"), 0)
    return log


# -- retention


def test_nobody_waits_while_retention_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, SHORT)
    fill(log)
    gate = Gate(monkeypatch, Segment, "change_suffix")
    with ThreadPoolExecutor(1) as another, gate.held_by(log.delete_old_segments):
        start = log.log_start_offset
        assert start > 0
        assert another.submit(log.append_as_leader, batch(b"a"), 0).result(WAIT_S).first_offset == 12
        assert another.submit(log.read_bytes, start, 10_000).result(WAIT_S)
    assert sorted(path.name for path in log.dir.glob("*.log")) == [
        f"{segment.base_offset:020d}.log" for segment in log.segments
    ]


@pytest.mark.parametrize(
    "begin_anew", [lambda log: log.truncate_fully_and_start_at(0), lambda log: log.truncate_to(0)]
)
def test_a_log_that_begins_anew_while_retention_renames_keeps_what_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin_anew: Callable[[Log], object]
) -> None:
    log = open_log(tmp_path, SHORT)
    fill(log)
    gate = Gate(monkeypatch, Segment, "change_suffix")
    with ThreadPoolExecutor(1) as another:
        with gate.held_by(log.delete_old_segments):
            beginning = another.submit(begin_anew, log)
            wait([beginning], 0.3)  # it waits for the renames, or began too early
        beginning.result(WAIT_S)
    log.append_as_leader(batch(b"new"), 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    assert (log.dir / FIRST).stat().st_size == log.size_bytes


def test_a_topic_made_anew_while_retention_renames_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path, SHORT)
    old = manager.get_or_create(TP, None)
    fill(old)
    gate = Gate(monkeypatch, Segment, "change_suffix")
    with ThreadPoolExecutor(1) as another:
        with gate.held_by(old.delete_old_segments):
            making = another.submit(made_anew, manager)
            wait([making], 0.3)
        new = making.result(WAIT_S)
    assert (new.dir / FIRST).stat().st_size == new.size_bytes > 0


def test_what_is_still_to_be_unlinked_goes_with_its_topic(tmp_path: Path) -> None:
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    config = LogConfig(segment_bytes=1000, retention_bytes=1500, file_delete_delay_ms=3_600_000)
    manager = managed(tmp_path, config, scheduler)
    old = manager.get_or_create(TP, None)
    fill(old)
    assert old.delete_old_segments() > 0
    new = made_anew(manager)
    scheduler.shutdown()
    retired = old.dir / f"{FIRST}.deleted"
    namesake = new.dir / f"{FIRST}.deleted"
    namesake.touch()
    assert retired.exists()
    for segment in list(old._segments._retired):
        old._segments._unlink(segment)  # as the scheduler does in an hour
    assert not retired.exists()
    assert namesake.exists()


@pytest.mark.parametrize("offset", [1, 0], ids=["some segments", "all of them"])
def test_what_a_truncation_takes_away_is_unlinked_when_nobody_waits(tmp_path: Path, offset: int) -> None:
    """A follower that begins anew has thousands of large files, and its leader's next orders wait for its lock."""
    scheduler = KafkaScheduler(2)
    scheduler.startup()
    config = LogConfig(segment_bytes=1000, file_delete_delay_ms=100)
    log = managed(tmp_path, config, scheduler).get_or_create(TP)
    fill(log)
    with log._segments.renaming:  # nobody unlinks meanwhile
        log.truncate_to(offset) if offset else log.truncate_fully_and_start_at(0)
        log.append_as_leader(keyed(b"new"), 0)
        assert list(log.dir.glob("*.log.deleted"))
    wait_until(lambda: not list(log.dir.glob("*.deleted")), WAIT_S)
    assert [path.name for path in log.dir.glob("*.log")] == [FIRST]
    assert len(contents(log)) == offset + 1
    scheduler.shutdown()


def test_no_thread_of_the_scheduler_waits_for_who_renames(tmp_path: Path) -> None:
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    config = LogConfig(segment_bytes=1000, retention_bytes=1500, file_delete_delay_ms=1)
    manager = managed(tmp_path, config, scheduler)
    log = manager.get_or_create(TP, None)
    fill(log)
    ran = threading.Event()
    with log._segments.renaming:
        assert log.delete_old_segments() > 0
        scheduler.schedule("another", ran.set, delay_ms=100)
        assert ran.wait(WAIT_S)
        assert list(log.dir.glob("*.deleted"))
    wait_until(lambda: not list(log.dir.glob("*.deleted")), WAIT_S)
    scheduler.shutdown()


def test_no_thread_of_the_scheduler_waits_for_who_syncs_a_log(tmp_path: Path) -> None:
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    log = managed(tmp_path, LogConfig(segment_bytes=1000), scheduler).get_or_create(TP, None)
    ran = threading.Event()
    with log.durability.flushing:
        fill(log)  # each of its rolls has the scheduler sync
        scheduler.schedule("another", ran.set, delay_ms=50)
        assert ran.wait(WAIT_S)
        assert log.recovery_point == 0
    wait_until(lambda: log.recovery_point >= log.segments[-1].base_offset, WAIT_S)
    scheduler.shutdown()


def test_rolls_that_come_faster_than_syncs_ask_for_one_sync(tmp_path: Path) -> None:
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    log = managed(tmp_path, LogConfig(segment_bytes=1000), scheduler).get_or_create(TP, None)
    began, on, asked = threading.Event(), threading.Event(), []
    scheduler.schedule("busy", lambda: (began.set(), on.wait(WAIT_S)))
    assert began.wait(WAIT_S)
    schedule = scheduler.schedule
    scheduler.schedule = lambda name, *rest, **more: (asked.append(name), schedule(name, *rest, **more))[1]
    fill(log)
    rolled_to = log.segments[-1].base_offset
    assert asked.count("flush-log") == 1
    on.set()
    wait_until(lambda: log.recovery_point >= rolled_to, WAIT_S)
    fill(log)  # those that come after it have begun ask for another
    wait_until(lambda: log.recovery_point >= log.segments[-1].base_offset > rolled_to, WAIT_S)
    scheduler.shutdown()


# -- compaction


def test_compaction_of_a_topic_that_is_made_anew_meanwhile_leaves_the_new_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = managed(tmp_path, COMPACT)
    old = manager.get_or_create(TP, None)
    fill(old)
    gate = Gate(monkeypatch, cleaner, "compact_batch")
    cleaned: list[int] = []
    with gate.held_by(lambda: cleaned.append(manager.cleaner.run())):
        new = made_anew(manager)
        for suffix in (".cleaned", ".swap"):
            (new.dir / f"{FIRST}{suffix}").write_bytes(b"the new topic's")
        before = {path.name: path.read_bytes() for path in new.dir.iterdir()}
    assert {path.name: path.read_bytes() for path in new.dir.iterdir()} == before
    assert cleaned == [0]
    assert "log_uncleanable" not in capsys.readouterr().out
    assert manager.cleaner.uncleanable_in(next(iter(manager.dirs))) == []


def test_how_far_a_log_was_cleaned_is_not_said_of_the_next_one_of_its_name(tmp_path: Path) -> None:
    manager = managed(tmp_path, COMPACT)
    fill(manager.get_or_create(TP, None))
    checkpoint = OffsetCheckpoint(tmp_path, CLEANER_CHECKPOINT)
    assert manager.cleaner.run() == 1
    assert checkpoint.read()[TP] > 0
    made_anew(manager)
    assert checkpoint.read() == {}


def test_a_cleaning_that_ends_as_its_topic_is_made_anew_says_nothing_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path, COMPACT)
    fill(manager.get_or_create(TP, None))
    real = cleaner.clean_log

    def clean_then_delete(*arguments: Any, **named: Any) -> cleaner.CleanerStats:
        stats = real(*arguments, **named)
        made_anew(manager)
        return stats

    monkeypatch.setattr(cleaner, "clean_log", clean_then_delete)
    assert manager.cleaner.run() == 1
    assert OffsetCheckpoint(tmp_path, CLEANER_CHECKPOINT).read() == {}
