"""The offsets of ListOffsets 0: where segments begin, by their files' times."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.log.old_offsets import Beginning, chosen, offsets_before, visible
from broker.log.segments.batch_file import LOG_SUFFIX
from broker.protocol.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tests.support.logs import batch, open_log

NOW_MS = 1_000_000


def beginnings(*changed: int | None) -> list[Beginning]:
    """Segments of ten records each."""

    def told(at: int | None) -> Callable[[], int | None]:
        return lambda: at

    return [Beginning(10 * n, told(at)) for n, at in enumerate(changed)]


@pytest.mark.parametrize(
    ("timestamp", "most", "expected"),
    [
        (LATEST_TIMESTAMP, 1, [30]),
        (LATEST_TIMESTAMP, 9, [30, 20, 10, 0]),
        (EARLIEST_TIMESTAMP, 9, [0]),
        (EARLIEST_TIMESTAMP, 0, []),
        (200, 2, [10, 0]),
        (200, 1, [10]),
        (299, 9, [10, 0]),
        (99, 9, []),
        (10**15, 9, [30, 20, 10, 0]),
        (-4, 9, []),
    ],
)
def test_segments_changed_until_then_are_chosen_the_last_ones_first(
    timestamp: int, most: int, expected: Sequence[int]
) -> None:
    assert chosen(beginnings(100, 200, 300, 400), timestamp, most) == expected


def test_a_segment_that_is_gone_was_not_changed() -> None:
    assert chosen(beginnings(None, None), 500, 9) == []
    assert chosen(beginnings(100, None), 500, 9) == [0]


def test_a_consumer_sees_the_high_watermark_for_what_is_above_it() -> None:
    assert visible([30, 20, 10, 0], 25) == [25, 20, 10, 0]
    assert visible([30, 20], 30) == [30, 20]
    assert visible([30], 5) == [5]
    assert visible([], 5) == []


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three segments of one batch, last changed at 100, 200 and 300 s."""
    made = open_log(tmp_path, LogConfig(segment_bytes=200))
    for value in (b"a", b"b", b"c"):
        made.append_as_leader(batch(value * 100), 0)
    for number, segment in enumerate(made.segments, 1):
        os.utime(segment.path(LOG_SUFFIX), (100 * number, 100 * number))
    return made


def test_a_log_answers_with_its_segments_and_its_end(log: Log) -> None:
    assert [each.base_offset for each in log.segments] == [0, 1, 2]
    assert offsets_before(log, LATEST_TIMESTAMP, 10, NOW_MS) == [3, 2, 1, 0]
    assert offsets_before(log, 250_000, 10, NOW_MS) == [1, 0]
    assert offsets_before(log, NOW_MS, 1, NOW_MS) == [3]
    assert offsets_before(log, NOW_MS - 1, 1, NOW_MS) == [2]


def test_a_log_that_begins_inside_a_segment_begins_there(log: Log) -> None:
    log.high_watermark = 3
    log.increment_log_start_offset(1)
    assert offsets_before(log, EARLIEST_TIMESTAMP, 1, NOW_MS) == [1]


def test_an_empty_log_has_one_offset(tmp_path: Path) -> None:
    empty = open_log(tmp_path)
    assert offsets_before(empty, LATEST_TIMESTAMP, 10, NOW_MS) == [0]
    assert offsets_before(empty, EARLIEST_TIMESTAMP, 10, NOW_MS) == [0]
