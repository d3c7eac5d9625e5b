"""Whoever uses a descriptor holds its file meanwhile, also if a thread lets go of it just then.

It is let go of at the worst moment here: between the look-up of the descriptor and the call that uses it. What is
opened next gets a descriptor that is free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.log.look_ups import read_region
from broker.log.segments.segment import Segment
from tests.support.logs import batch, open_log

USES = ["pread", "fdatasync", "pwrite", "ftruncate"]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_log(tmp_path / "log", LogConfig(segment_bytes=1 << 20))
    for number in range(3):
        log.append_as_leader(batch(b"%d" % number), 0)
    return log


@pytest.fixture
def others(tmp_path: Path) -> Iterator[list[int]]:
    opened: list[int] = []
    yield opened
    for fd in opened:
        os.close(fd)


def let_go_at_each_use(
    monkeypatch: pytest.MonkeyPatch, segment: Segment, other: Path, others: list[int]
) -> list[str]:
    """Returns the calls, and "another" instead for each that was made with the descriptor of the other file."""
    used: list[str] = []

    def letting_go(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *arguments: Any) -> Any:
            segment.let_go_of_file()
            others.append(os.open(other, os.O_RDWR | os.O_CREAT))
            is_another = Path(f"/proc/self/fd/{fd}").readlink() == other
            used.append("another" if is_another else name)
            return real(fd, *arguments)

        return call

    for name in USES:
        monkeypatch.setattr(os, name, letting_go(name, getattr(os, name)))
    return used


@pytest.mark.parametrize(
    ("use", "call"),
    [
        (lambda segment: segment.sync(), "fdatasync"),
        (lambda segment: segment.header_at(0), "pread"),
        (lambda segment: segment.read_batches(0, segment.size), "pread"),
        (lambda segment: list(segment.headers_from(0)), "pread"),
        (lambda segment: segment.cut_back(), "ftruncate"),
    ],
    ids=["sync", "header", "batches", "walk", "cut back"],
)
def test_a_segment_holds_the_file_whose_descriptor_it_uses(
    log: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    others: list[int],
    use: Callable[[Segment], object],
    call: str,
) -> None:
    segment = log._segments.active
    used = let_go_at_each_use(monkeypatch, segment, tmp_path / "other", others)
    use(segment)
    assert call in used
    assert "another" not in used


def test_a_sync_before_an_answer_holds_the_file(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[int]
) -> None:
    log.flush()
    log.append_as_leader(batch(b"more"), 0)
    used = let_go_at_each_use(monkeypatch, log._segments.active, tmp_path / "other", others)
    log.sync_records()
    assert "fdatasync" in used
    assert "another" not in used


def test_a_read_holds_the_file_that_it_looks_into(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[int]
) -> None:
    used = let_go_at_each_use(monkeypatch, log._segments.active, tmp_path / "other", others)
    found = log.reader.read(0, 1, end_offset=3, min_one_batch=True).region
    assert found is not None
    assert read_region(found)
    assert used
    assert "another" not in used
