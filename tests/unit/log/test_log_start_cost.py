"""What each log costs at a start and at a stop, in looks at its directory and files made: a broker has thousands."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.utils.topic_partition import TopicPartition
from tests.support.logs import batch, contents

TP = TopicPartition("t", 0)
PRODUCER = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


@pytest.fixture
def calls(monkeypatch, tmp_path) -> Counter[str]:
    """Calls on the partition's files by name: ``listdir``; ``create``, ``rename`` and ``ftruncate`` as changes."""
    counted: Counter[str] = Counter()
    inside = str(tmp_path / "t-0")

    def count(name: str) -> None:
        real = getattr(os, name)

        def call(path, *args, **options):
            if name == "ftruncate" or str(path).startswith(inside):
                counted[name] += name != "open" or bool(args[0] & os.O_CREAT)
            return real(path, *args, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("listdir", "stat", "open", "ftruncate", "rename", "replace", "unlink"):
        count(name)
    return counted


def started(tmp_path) -> tuple[LogManager, Log]:
    manager = LogManager([str(tmp_path)], LogConfig())
    manager.startup()
    return manager, manager.get_or_create(TP)


def closed_with(tmp_path, *batches: memoryview) -> None:
    manager, log = started(tmp_path)
    for one in batches:
        log.append_as_leader(one, 0)
    manager.shutdown()


def test_a_clean_log_is_opened_by_one_look_at_its_directory(tmp_path, calls) -> None:
    closed_with(tmp_path, batch(b"x"))
    calls.clear()
    manager, log = started(tmp_path)
    assert contents(log) == [(0, b"x")]
    assert {name: count for name, count in calls.items() if count} == {"listdir": 1, "stat": 4}
    calls.clear()
    manager.shutdown()
    assert not +calls, "nothing was appended: closing it again changes no file"


def test_of_an_idle_log_no_file_is_looked_for_that_its_directory_does_not_list(tmp_path, calls) -> None:
    closed_with(tmp_path)
    calls.clear()
    manager, _ = started(tmp_path)
    assert {name: count for name, count in calls.items() if count} == {"listdir": 1, "stat": 1}, "its .log"
    manager.shutdown()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("clean", [True, False])
def test_logs_without_records_hold_no_file_open_after_a_start(tmp_path, clean) -> None:
    manager, _ = started(tmp_path)
    for number in range(50):
        manager.get_or_create(TopicPartition("idle", number))
    if clean:
        manager.shutdown()
    else:
        manager.dirs.unlock()
    before = open_files()
    again, log = started(tmp_path)
    assert open_files() - before <= 2, "the lock of the directory"
    log.append_as_leader(batch(b"x"), 0)
    assert contents(log) == [(0, b"x")]
    again.shutdown()


def test_what_its_topic_asks_for_is_looked_up_once_for_all_its_logs(tmp_path) -> None:
    manager, _ = started(tmp_path)
    for number in range(20):
        manager.get_or_create(TopicPartition("wide", number))
    manager.shutdown()
    asked: Counter[str] = Counter()

    def config_of(topic: str) -> LogConfig:
        asked[topic] += 1
        return LogConfig(retention_ms=7)

    again = LogManager([str(tmp_path)], LogConfig(), config_of)
    again.startup()
    assert asked == {"t": 1, "wide": 1}
    assert {log.config.retention_ms for log in again.all_logs()} == {7}
    again.shutdown()


def test_the_latest_timestamp_of_a_short_log_is_its_batches_whatever_the_time_index_says(tmp_path) -> None:
    closed_with(tmp_path, batch(b"x", timestamp=1_000))
    (index,) = tmp_path.glob("t-0/*.timeindex")
    index.write_bytes((999_999).to_bytes(8, "big") + bytes(4))
    _, log = started(tmp_path)
    assert log.segments[0].largest_timestamp == 1_000


def test_a_killed_log_is_recovered_by_few_looks(tmp_path, calls) -> None:
    manager, log = started(tmp_path)
    log.append_as_leader(batch(b"x"), 0)
    manager.dirs.unlock()
    calls.clear()
    _, log = started(tmp_path)
    assert contents(log) == [(0, b"x")]
    assert calls["listdir"] <= 2, "one to count what is to be verified"
    assert not list(log.dir.glob("*.snapshot"))


def test_a_log_without_producers_has_no_snapshot_until_it_is_long(tmp_path) -> None:
    closed_with(tmp_path, batch(b"x"))
    assert not list(tmp_path.glob("t-0/*.snapshot"))
    closed_with(tmp_path, *(batch(b"y" * 10_000) for _ in range(7)))
    assert [path.name for path in tmp_path.glob("t-0/*.snapshot")] == [f"{8:020d}.snapshot"]


def test_producers_are_known_after_a_stop_however_short_the_log(tmp_path) -> None:
    closed_with(tmp_path, batch(b"x", timestamp=int(time.time() * 1000), **PRODUCER))
    manager, log = started(tmp_path)
    assert list(log.producer_state.producers) == [5]
    manager.shutdown()
    _, log = started(tmp_path)
    assert list(log.producer_state.producers) == [5], "also after a start and a stop that appended nothing"


def test_a_log_that_was_appended_to_is_closed_anew(tmp_path) -> None:
    closed_with(tmp_path, batch(b"x", timestamp=int(time.time() * 1000), **PRODUCER))
    manager, log = started(tmp_path)
    log.append_as_leader(batch(b"y"), 0)
    manager.shutdown()
    names = {path.name for path in tmp_path.glob("t-0/*.snapshot")}
    assert f"{2:020d}.snapshot" in names
    index = next(tmp_path.glob("t-0/*.timeindex"))
    assert index.stat().st_size == 12, "trimmed to its one entry"
