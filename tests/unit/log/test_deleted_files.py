"""Files that were deleted: when their blocks are free, and which thread waits for that."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from queue import SimpleQueue

import pytest

from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.log.segments import segment_file
from broker.log.segments.segment_file import SegmentFile, close_deleted_apart
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition
from rig.open_files import deleted_and_open
from rig.wait import wait_until
from tests.support.logs import batch

A = TopicPartition("a", 0)


def still_open(directory: Path) -> list[str]:
    """The files below ``directory`` that are deleted, and not closed."""
    return [name for name in deleted_and_open() if name.startswith(str(directory))]


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    made = LogManager([str(tmp_path)], LogConfig())
    made.startup()
    return made


def test_a_deleted_logs_blocks_are_free_though_others_refer_to_the_log(
    tmp_path: Path, manager: LogManager
) -> None:
    log = manager.get_or_create(A)
    for _ in range(100):  # so many that the index has a file
        log.append_as_leader(batch(bytes(5_000)), 0)
    in_flight = log.reader.read(0, 9999, end_offset=1, min_one_batch=True)
    manager.delete_async(A)
    assert [Path(name).suffix for name in still_open(tmp_path)] == [".log"], "a response is from it"
    del in_flight
    wait_until(lambda: still_open(tmp_path) == [], timeout=30, what="the blocks are free")
    assert log.is_closed


def test_who_reads_a_deleted_log_late_is_told_and_the_directory_works_on(
    tmp_path: Path, manager: LogManager
) -> None:
    log = manager.get_or_create(A)
    log.append_as_leader(batch(b"x"), 0)
    manager.delete_async(A)
    with pytest.raises(KafkaError) as caught:
        log.reader.read(0, 9999, end_offset=1, min_one_batch=True)
    assert caught.value.error_code is Errors.KAFKA_STORAGE_ERROR
    assert manager.dirs.all[0].health.failure is None


@pytest.fixture
def to_close(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[int]:
    """What the thread for deleted files would close."""
    queue: SimpleQueue[int] = SimpleQueue()
    gc.collect()  # nobody else's files
    monkeypatch.setattr(segment_file, "_nameless", queue)
    monkeypatch.setattr(segment_file, "_closer", ["is there"])
    return queue


def test_whoever_has_the_last_reference_to_a_deleted_file_leaves_its_closing_to_another_thread(
    tmp_path: Path, to_close: SimpleQueue[int]
) -> None:
    file = SegmentFile(tmp_path / "segment", "x+")
    (tmp_path / "segment").unlink()
    del file
    fd = to_close.get(timeout=0)
    assert len(still_open(tmp_path)) == 1
    os.close(fd)
    assert still_open(tmp_path) == []


def test_a_file_that_has_a_name_is_closed_at_once(tmp_path: Path, to_close: SimpleQueue[int]) -> None:
    file = SegmentFile(tmp_path / "segment", "x+")
    fd = file.fileno()
    del file
    assert to_close.empty()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_the_thread_for_deleted_files_closes_them(tmp_path: Path) -> None:
    close_deleted_apart()
    file = SegmentFile(tmp_path / "segment", "x+")
    (tmp_path / "segment").unlink()
    del file
    wait_until(lambda: still_open(tmp_path) == [], timeout=30, what="the file is closed")
