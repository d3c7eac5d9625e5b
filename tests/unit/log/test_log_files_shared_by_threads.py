"""Descriptors of a log's files, used by threads side by side."""

import os
import struct
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.log.segments import batch_file
from broker.log.segments.index_file import IndexFile
from broker.log.segments.segment import Segment

ENTRY = struct.Struct(">ii")
READERS = 3


@pytest.fixture
def threads_that_alternate() -> Iterator[ThreadPoolExecutor]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(READERS) as pool:
            yield pool
    finally:
        sys.setswitchinterval(before)


def test_look_ups_do_not_disturb_the_writer_of_an_index(
    tmp_path: Path, threads_that_alternate: ThreadPoolExecutor
) -> None:
    index = IndexFile(tmp_path / "0.index", ENTRY, max_bytes=80_000)
    index.append(0, 0)
    index.trim()
    stop = threading.Event()

    def look_up() -> int:
        found = 0
        while not stop.is_set():
            entry = index.last_at_most(0, 1_000_000)
            assert entry is not None
            assert entry[0] == entry[1]
            found += 1
        return found

    readers = [threads_that_alternate.submit(look_up) for _ in range(READERS)]
    try:
        for number in range(1, 3000):
            index.append(number, number)
            index.trim()
    finally:
        stop.set()
    assert all(reader.result() > 0 for reader in readers)
    assert list(index) == [(number, number) for number in range(3000)]


def test_a_segment_opens_its_file_once_however_many_ask(
    tmp_path: Path, threads_that_alternate: ThreadPoolExecutor
) -> None:
    Segment.create(tmp_path, 0, 1024, 0)
    for _ in range(300):
        segment = Segment.open(tmp_path, 0, 1024)
        start = threading.Barrier(READERS)

        def number_of_its_file(segment: Segment = segment, start: threading.Barrier = start) -> int:
            start.wait(10)
            return id(segment.file)

        asked = [threads_that_alternate.submit(number_of_its_file) for _ in range(READERS)]
        assert {future.result() for future in asked} == {id(segment.file)}


def test_a_file_that_is_opened_while_its_topic_is_made_anew_is_the_old_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, gone = tmp_path / "t-0", tmp_path / "t-0.old-delete"
    here.mkdir()
    Segment.create(here, 0, 1024, 0)
    (here / f"{0:020d}.log").write_bytes(b"old")
    segment = Segment.open(here, 0, 1024)
    real = batch_file.SegmentFile

    def open_late(path: Path, mode: str) -> batch_file.SegmentFile:
        if not gone.exists():
            here.rename(gone)
            segment.follow(gone)
            here.mkdir()
            Path(path).write_bytes(b"new")
        return real(path, mode)

    monkeypatch.setattr(batch_file, "SegmentFile", open_late)
    assert os.pread(segment.file.fileno(), 10, 0) == b"old"


def test_an_index_that_was_cut_from_outside_is_an_error_of_the_look_up_alone(tmp_path: Path) -> None:
    """As is a page that the disk does not give: in a map of the file either ends the process."""
    index = IndexFile(tmp_path / "0.index", ENTRY, max_bytes=800_000)
    for number in range(50_000):
        index.append(number, number)
    index.trim()
    assert index.last_at_most(0, 49_000) == (49_000, 49_000)
    os.truncate(index.path, 4096)
    with pytest.raises(IndexError, match=r"0\.index"):
        index.last_at_most(0, 25_000)
    assert index.last_at_most(0, 49_001) == (49_001, 49_001), "what was read before is kept"
    assert index.entry(511) == (511, 511)


def test_one_entry_after_the_other_is_read_once(tmp_path: Path) -> None:
    index = IndexFile(tmp_path / "0.index", ENTRY, max_bytes=800_000)
    for number in range(0, 20_000, 2):
        index.append(number, number * 10)
    index.trim()
    assert index.last_at_most(0, 5_000) == (5_000, 50_000)
    index.path.unlink()
    assert index.search(0, 5_003) == (2_502, (5_002, 50_020))
    assert index.search(1, 50_019) == (2_501, (5_000, 50_000))
    with pytest.raises(FileNotFoundError):
        index.last_at_most(0, 19_000)


def test_indexes_that_share_a_place_do_not_have_each_others_entries(tmp_path: Path) -> None:
    indexes = [IndexFile(tmp_path / f"{number}.index", ENTRY, max_bytes=8_000) for number in range(300)]
    for number, index in enumerate(indexes):
        for entry in range(100):
            index.append(entry, number * 1_000 + entry)
        index.trim()
    for _ in range(2):
        for number, index in enumerate(indexes):
            assert index.last_at_most(0, 50) == (50, number * 1_000 + 50)


def test_what_was_found_by_a_damaged_entry_is_not_where_an_index_is_cut(tmp_path: Path) -> None:
    index = IndexFile(tmp_path / "0.index", ENTRY, max_bytes=800_000)
    for number in range(1, 1_501):
        index.append(number, number * 100)
    index.trim()
    first_of_the_last_block = 1_125
    with index.path.open("r+b") as file:
        file.seek(first_of_the_last_block * ENTRY.size)
        file.write(bytes(ENTRY.size))
    assert index.last_at_most(1, 150_000) == (1_500, 150_000)
    assert index.count_at_most(1, 10_000) == 100
