"""Segments are files: clients may not have one for each append, and those that are not written to are not kept open."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from broker.config.alter import AlterError, Change, Operation, alter_broker, alter_topic
from broker.config.broker_config import BrokerConfig
from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.log.roll_pace import RollPace
from broker.log.segments import batch_file
from rig.wait import wait_until
from tests.support.clocks import ManualClock
from tests.support.logs import batch, contents, open_log

SET = Operation.SET
DAY_MS = 86_400_000


def config_of(**properties: object) -> BrokerConfig:
    props = {key.replace("_", "."): str(value) for key, value in properties.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "z:2181", **props})


def open_files(directory: Path) -> int:
    gc.collect()
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return sum(os.path.lexists(link) and str(directory) in os.readlink(link) for link in links)  # noqa: PTH115


# --- what clients may set


@pytest.mark.parametrize(
    ("name", "value", "floor"),
    [("segment.bytes", 1_048_575, 1_048_576), ("segment.index.bytes", 16_383, 16_384)],
)
def test_a_client_cannot_make_a_topics_segments_small(name, value, floor):
    config = config_of()
    with pytest.raises(AlterError, match=f"{name}: {value} is less than {floor}"):
        alter_topic(config, {}, [Change(name, SET, str(value))])
    assert alter_topic(config, {}, [Change(name, SET, str(floor))]) == {name: str(floor)}


@pytest.mark.parametrize("cluster_wide", [True, False])
@pytest.mark.parametrize(
    ("name", "value", "floor"),
    [("log.segment.bytes", 1_048_575, 1_048_576), ("log.index.size.max.bytes", 16_383, 16_384)],
)
def test_a_client_cannot_make_a_brokers_segments_small(name, value, floor, cluster_wide):
    config = config_of()
    with pytest.raises(AlterError, match=f"{name}: {value} is less than {floor}"):
        alter_broker(config, {}, [Change(name, SET, str(value))], cluster_wide=cluster_wide)
    changed = alter_broker(config, {}, [Change(name, SET, str(floor))], cluster_wide=cluster_wide)
    assert changed == {name: str(floor)}


def test_clients_may_go_as_low_as_the_operator_did():
    config = config_of(log_segment_bytes=5000)
    assert alter_topic(config, {}, [Change("segment.bytes", SET, "5000")]) == {"segment.bytes": "5000"}
    with pytest.raises(AlterError, match=r"segment.bytes: 4999 is less than 5000"):
        alter_topic(config, {}, [Change("segment.bytes", SET, "4999")])


def test_small_segments_that_are_set_already_are_used_and_stand_in_no_ones_way():
    config = config_of()
    assert config.topic_log_config({"segment.bytes": "100"}).segment_bytes == 100
    after = alter_topic(config, {"segment.bytes": "100"}, [Change("retention.ms", SET, "1")])
    assert after == {"segment.bytes": "100", "retention.ms": "1"}


# --- rolling for age


def append_days_apart(log: Log, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        log.append_as_leader(batch(b"v", timestamp=number * 30 * DAY_MS), 0)


def test_timestamps_far_apart_roll_a_segment_a_second_and_not_one_each(tmp_path):
    clock = ManualClock()
    log = open_log(tmp_path, clock=clock)
    append_days_apart(log, 100)
    assert log.num_segments == 2
    clock.now_ms += 1_000
    append_days_apart(log, 100, first=100)
    assert log.num_segments == 3
    assert len(contents(log)) == 200


def test_all_logs_together_roll_for_age_so_often_and_each_can_again_later():
    pace = RollPace(per_second=50, at_once=20)
    never = -(1 << 62)
    assert sum(pace.allows(5_000, never) for _ in range(1_000)) == 20
    assert sum(pace.allows(6_000 + ms, never) for ms in range(1_000)) in range(60, 72)
    assert not pace.allows(60_000, 59_001)
    assert pace.allows(60_000, 59_000)
    assert pace.allows(1_000, 60_000), "the clock was set back"


# --- files that stay open


def test_thousands_of_segments_hold_no_file_open_but_the_one_that_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)  # thousands of them, of a disk that others use
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    for number in range(3_000):
        log.append_as_leader(batch(b"%d" % number), 0)
        if number % 100 == 99:
            log.flush()
    assert log.num_segments == 3_000
    assert open_files(tmp_path) == 1


def test_a_segment_that_was_synced_before_it_rolled_holds_no_file_open(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    for number in range(20):
        log.append_as_leader(batch(b"%d" % number), 0)
        log.flush()
    assert log.num_segments == 20
    assert open_files(tmp_path) == 1


def test_a_segment_whose_end_is_not_synced_keeps_its_file(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=150))
    log.append_as_leader(batch(b"a"), 0)
    log.flush()
    log.append_as_leader(batch(b"b"), 0)
    log.append_as_leader(batch(b"c"), 0)
    assert log.num_segments == 2
    log.flush(up_to=1)
    assert open_files(tmp_path) == 2
    log.flush(up_to=2)
    assert open_files(tmp_path) == 1


def test_reading_thousands_of_segments_leaves_so_many_files_open(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)
    monkeypatch.setattr(batch_file, "MOST_KEPT_OPEN", 50)
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    for number in range(1_000):
        log.append_as_leader(batch(b"%d" % number), 0)
    log.flush()
    expected = [(number, b"%d" % number) for number in range(1_000)]
    assert contents(log) == expected
    assert 40 <= open_files(tmp_path) <= 51
    first = log.reader.read(0, 1_000, end_offset=1_000, min_one_batch=True).region
    assert first is not None
    before = os.pread(first.file.fileno(), first.size, first.position)
    assert contents(log) == expected
    assert os.pread(first.file.fileno(), first.size, first.position) == before, "who reads holds its file"


def test_a_segment_that_a_truncation_makes_active_is_written_to_again(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=150))
    for number in range(10):
        log.append_as_leader(batch(b"%d" % number), 0)
    log.flush()
    log.truncate_to(3)
    log.append_as_leader(batch(b"new"), 0)
    log.flush()
    assert contents(log) == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"new")]
    # Once a test of this process has started it, a thread closes the files that the truncation deleted.
    wait_until(lambda: open_files(tmp_path) <= 2, what="the deleted files closed")
