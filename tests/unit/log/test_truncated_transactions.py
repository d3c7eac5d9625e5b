"""Readers of a log that is being truncated: no transaction is decided for them that is open in what stays."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

import pytest

from broker.log import look_ups
from broker.log.log import Log
from broker.log.producers.open_transactions import OpenTransactions
from broker.log.results import AbortedTransaction, LogRead
from tests.support.logs import batch, open_log
from tests.support.transactions import ABORT, COMMIT, end, write

PID = 7
LARGE = 1 << 20


@pytest.fixture
def log(tmp_path) -> Log:
    return open_log(tmp_path)


class DisturbedLock:
    """A log's lock. Before it is taken for the first time, or after it was released, something happens with the log."""

    def __init__(
        self,
        log: Log,
        *,
        before: Callable[[], object] | None = None,
        after: Callable[[], object] | None = None,
    ) -> None:
        self._lock = log.lock
        self._before, self._after = before, after
        log._context.lock = self

    def __enter__(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            before()
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()
        after, self._after = self._after, None
        if after is not None:
            after()


def looks_during(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], look: Callable[[], object]
) -> list[object]:
    """What a reader sees each time the change reads a file."""
    seen: list[object] = []
    pread = os.pread

    def watched(fd: int, size: int, position: int) -> bytes:
        seen.append(look())
        return pread(fd, size, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", watched)
        change()
    return seen


def open_behind_records(log: Log) -> None:
    """An open transaction at offset 1, and records behind it. The last one is not replicated."""
    log.append_as_leader(batch(b"before"), 0)
    write(log, b"open", pid=PID)
    for _ in range(3):
        log.append_as_leader(batch(b"behind"), 0)
    log.high_watermark = log.log_end_offset - 1


def decided(log: Log) -> None:
    """A transaction at offset 1 whose marker at 2 is replicated."""
    log.append_as_leader(batch(b"before"), 0)
    write(log, b"a", pid=PID)
    end(log, COMMIT, PID)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset() == 3


def test_an_open_transaction_holds_readers_back_while_the_log_is_truncated(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_behind_records(log)

    def look() -> tuple[int, int]:
        return log.last_stable_offset(), len(log.producer_state.producers)

    seen = looks_during(monkeypatch, lambda: log.truncate_to(log.log_end_offset - 1), look)
    assert set(seen) == {(1, 1)}
    assert look() == (1, 1)


def test_an_open_transaction_holds_readers_back_while_its_log_is_read_again(log: Log) -> None:
    open_behind_records(log)
    log.roll()
    log.append_as_leader(batch(b"in another segment"), 0)
    for snapshot in log.dir.glob("*.snapshot"):
        snapshot.unlink()
    seen: list[int] = []

    class Watch(threading.Event):
        def is_set(self) -> bool:
            seen.append(log.last_stable_offset())
            return False

    log.producers.rebuild(cancel=Watch())
    assert seen == [1, 1]


def test_the_high_watermark_is_lowered_before_readers_see_what_is_open_below_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(log)
    seen = looks_during(monkeypatch, lambda: log.truncate_to(2), log.last_stable_offset)
    assert seen[-1] == 2, "the old state, up to the new end"
    assert log.last_stable_offset() == 1


def test_a_transaction_whose_marker_is_truncated_is_open_for_who_waited_for_the_lock(log: Log) -> None:
    decided(log)
    write(log, b"b", pid=PID + 1)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset() == 3
    DisturbedLock(log, before=lambda: log.truncate_to(2))
    assert log.last_stable_offset() == 1


def test_a_marker_that_is_written_anew_is_not_replicated_for_who_waited_for_the_lock(log: Log) -> None:
    decided(log)
    write(log, b"b", pid=PID + 1)
    log.high_watermark = log.log_end_offset

    def another_leader() -> None:
        log.truncate_to(2)
        end(log, ABORT, PID)

    DisturbedLock(log, before=another_leader)
    assert (log.last_stable_offset(), log.high_watermark, log.log_end_offset) == (1, 2, 3)


@pytest.mark.parametrize("disturbed", ["before the stable offset", "after it", "after the records"])
def test_records_whose_marker_is_truncated_as_they_are_read_are_not_given_out(
    log: Log, monkeypatch: pytest.MonkeyPatch, disturbed: str
) -> None:
    decided(log)
    write(log, b"open", pid=PID + 1)
    if disturbed == "before the stable offset":
        DisturbedLock(log, before=lambda: log.truncate_to(2))
        log._segments.generation += 1  # as while segments are removed
    elif disturbed == "after it":
        DisturbedLock(log, after=lambda: log.truncate_to(2))
    else:
        aborted_in = look_ups.aborted_in

        def late(
            segments: look_ups.SegmentList, offset: int, read: LogRead, end_offset: int
        ) -> list[AbortedTransaction]:
            monkeypatch.undo()
            log.truncate_to(2)
            return aborted_in(segments, offset, read, end_offset)

        monkeypatch.setattr(look_ups, "aborted_in", late)
    read, aborted, stable = log.reader.read_committed(1, LARGE, min_one_batch=True)
    assert (read.region, aborted, stable) == (None, [], 1)
    assert log.log_end_offset == 2


def test_a_transaction_that_ends_is_never_unknown(log: Log) -> None:
    transactions = OpenTransactions()
    transactions.begin(1, PID)
    seen: list[bool] = []

    class Watched(deque[AbortedTransaction]):
        def append(self, ended: AbortedTransaction) -> None:
            seen.append(bool(transactions))
            super().append(ended)

    transactions._ended = Watched()
    transactions.end(PID, 1, 2)
    assert seen == [True]
    assert transactions.first_unstable_offset(3) is None
    assert not transactions


def test_a_verification_that_waits_for_a_truncation_is_valid_after_it(log: Log) -> None:
    end(log, ABORT, PID)
    DisturbedLock(log, before=lambda: log.truncate_to(0))
    guard = log.producers.begin_verification(PID, 0, 0)
    assert write(log, b"a", pid=PID, guard=guard).first_offset == 0


@pytest.mark.parametrize("offset", [0, 1])
def test_the_limits_of_producers_outlast_a_truncation(tmp_path, offset: int) -> None:
    log = open_log(tmp_path, max_producers=3)
    log.producers.expire_after(5)
    write(log, b"a", pid=PID)
    write(log, b"b", pid=PID, sequence=1)
    log.truncate_fully_and_start_at(0) if not offset else log.truncate_to(offset)
    state = log.producer_state
    assert (len(state.producers), state.max_producers, state.expiration_ms) == (offset, 3, 5)
