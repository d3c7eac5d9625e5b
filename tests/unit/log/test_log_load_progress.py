"""Loading tells how far it is, by segments where a log is verified, and can be stopped between any two."""

from __future__ import annotations

import threading

import pytest

from broker.config.log_config import LogConfig
from broker.log.errors import LoadCancelled
from broker.log.loading.load_progress import LoadMeter, LoadProgress, segments_to_verify
from broker.log.log_manager import LogManager
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock, TickingClock
from tests.support.logs import batch

TP = TopicPartition("long", 0)
SEGMENTS = 40


@pytest.fixture
def unclean(tmp_path):
    """A directory with one log of many segments, whose broker was killed."""
    config = LogConfig(segment_bytes=200)
    manager = LogManager([str(tmp_path)], config)
    manager.startup()
    log = manager.get_or_create(TP)
    while len(log.segments) < SEGMENTS:
        log.append_as_leader(batch(b"x" * 100), 0)
    manager.dirs.unlock()
    return tmp_path, config


def test_every_verified_segment_is_told_with_how_many_there_are(unclean):
    directory, config = unclean
    told = []
    manager = LogManager([str(directory)], config, clock=TickingClock())
    manager.startup(progress=told.append)
    manager.shutdown()
    assert [progress.segments for progress in told] == [*range(1, SEGMENTS + 1), SEGMENTS]
    assert {progress.segments_total for progress in told} == {SEGMENTS}
    assert told[-1] == LoadProgress(1, 1, SEGMENTS, SEGMENTS)
    assert str(told[3]) == f"Recovering: 4 of {SEGMENTS} segments verified, 0 of 1 logs loaded"


@pytest.mark.parametrize("at", [1, SEGMENTS // 2, SEGMENTS])
def test_a_stop_within_one_long_log_is_heeded_at_its_next_segment_and_loses_nothing(at, unclean):
    directory, config = unclean
    cancel = threading.Event()
    told = []

    def on_progress(progress):
        told.append(progress)
        if progress.segments == at:
            cancel.set()

    manager = LogManager([str(directory)], config, clock=TickingClock())
    with pytest.raises(LoadCancelled):
        manager.startup(cancel, on_progress)
    manager.shutdown()
    assert told[-1].segments == at
    again = LogManager([str(directory)], config)
    again.startup()
    assert len(again.get(TP).segments) == SEGMENTS
    again.shutdown()


def test_after_a_clean_end_there_is_nothing_to_verify(tmp_path):
    manager = LogManager([str(tmp_path)], LogConfig())
    manager.startup()
    manager.get_or_create(TP).append_as_leader(batch(b"x"), 0)
    manager.shutdown()
    told = []
    again = LogManager([str(tmp_path)], LogConfig())
    again.startup(progress=told.append)
    again.shutdown()
    assert told == [LoadProgress(1, 1, 0, 0)]
    assert str(told[0]) == "Loading: 1 of 1 logs"


@pytest.mark.parametrize(("point", "left"), [(0, 3), (9, 3), (10, 2), (25, 1), (10**6, 1)])
def test_segments_below_the_recovery_point_are_not_counted(point, left, tmp_path):
    for base in (0, 10, 20):
        (tmp_path / f"{base:020d}.log").touch()
    assert segments_to_verify(tmp_path, point) == left


def test_an_empty_or_absent_directory_has_no_segments(tmp_path):
    assert segments_to_verify(tmp_path, 0) == 0
    assert segments_to_verify(tmp_path / "absent", 0) == 0


def test_a_meter_tells_no_more_than_an_eye_can_follow():
    clock, told = ManualClock(), []
    meter = LoadMeter(2, 1000, told.append, clock)
    for _ in range(1000):
        clock.now_ms += 1
        meter.segments_verified(1)
    assert 4 <= len(told) <= 6
    meter.log_loaded()
    meter.log_loaded()
    assert told[-1] == LoadProgress(2, 2, 1000, 1000)
