"""Compaction and transactions: markers outlive the records that they decide about, then go (KIP-534)."""

from __future__ import annotations

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.log import Log
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import BatchHeader, iter_batches
from tests.support.logs import batch, open_log, unlimited
from tests.support.transactions import ABORT, COMMIT, end, write

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=1_000)
PID = 5


@pytest.fixture
def log(tmp_path) -> Log:
    return open_log(tmp_path, COMPACT)


def close_segment(log: Log) -> None:
    """The active segment is never compacted."""
    log.roll()
    log.append_as_leader(batch(b"active", key=b"active"), 0)
    log.high_watermark = log.log_end_offset


def clean(log: Log, now_ms: int) -> list[BatchHeader]:
    """Compacts all but the active segment; returns the headers of what is left of it."""
    clean_log(log, 0, log.segments[-1].base_offset, OffsetMap(1 << 20), now_ms=now_ms, pace=unlimited())
    return [header for _, header in log.segments[0].headers_from(0)]


def forget_producers(log: Log) -> None:
    log.producers.keep(0)


def bases(headers: list[BatchHeader]) -> list[int]:
    return [header.base_offset for header in headers]


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_a_marker_goes_after_its_records_and_delete_retention_ms(log: Log, committed: bool) -> None:
    write(log, b"old", pid=PID, key=b"k")  # offset 0
    end(log, committed, PID)
    log.append_as_leader(batch(b"new", key=b"k"), 0)
    close_segment(log)
    forget_producers(log)
    aborts = [(PID, 0, 1, 2)] if committed is ABORT else []
    assert bases(clean(log, 10_000)) == [1, 2]  # the records went in this pass
    assert look_ups.aborted_transactions(log.segments, 0, 3) == aborts
    marked = clean(log, 20_000)
    assert bases(marked) == [1, 2]
    assert (marked[0].is_control, marked[0].delete_horizon_ms) == (True, 21_000)
    assert look_ups.aborted_transactions(log.segments, 0, 3) == []
    assert bases(clean(log, 20_999)) == [1, 2]
    assert bases(clean(log, 21_000)) == [2]


def test_a_marker_stays_while_one_record_of_its_transaction_does(log: Log) -> None:
    write(log, b"old", pid=PID, key=b"k")
    write(log, b"kept", pid=PID, key=b"other", sequence=1)
    end(log, COMMIT, PID)
    log.append_as_leader(batch(b"new", key=b"k"), 0)
    close_segment(log)
    forget_producers(log)
    for now_ms in (10_000, 20_000, 30_000):
        left = clean(log, now_ms)
        assert bases(left) == [1, 2, 3]
        assert left[1].delete_horizon_ms is None


def test_the_last_batch_of_an_active_producer_keeps_its_marker(log: Log) -> None:
    write(log, b"aborted", pid=PID, key=b"k")
    end(log, ABORT, PID)
    close_segment(log)
    for now_ms in (10_000, 20_000, 30_000):
        left = clean(log, now_ms)
        assert [(header.base_offset, header.record_count) for header in left] == [(0, 0), (1, 1)]
        assert look_ups.aborted_transactions(log.segments, 0, 2) == [(PID, 0, 1, 2)]


def test_a_marker_that_fences_stays_without_its_record(log: Log) -> None:
    end(log, ABORT, PID, epoch=3)
    close_segment(log)
    clean(log, 10_000)
    (left,) = clean(log, 11_000)
    assert (left.is_control, left.record_count, left.producer_epoch) == (True, 0, 3)
    assert bases(clean(log, 12_000)) == [0]
    forget_producers(log)
    assert bases(clean(log, 13_000)) == []


def test_an_open_transaction_is_not_compacted(log: Log) -> None:
    write(log, b"a", pid=PID, key=b"k")
    log.append_as_leader(batch(b"new", key=b"k"), 0)
    close_segment(log)
    assert log.last_stable_offset() == 0


def test_what_compaction_leaves_recovers_to_the_same_state(tmp_path) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, b"aborted", pid=PID, key=b"k")
    end(log, ABORT, PID)
    end(log, ABORT, 6, epoch=2)
    close_segment(log)
    clean(log, 10_000)
    clean(log, 12_000)
    again = open_log(tmp_path, COMPACT, clean=False)
    again.high_watermark = again.log_end_offset
    assert again.last_stable_offset() == again.log_end_offset
    assert look_ups.aborted_transactions(again.segments, 0, 3) == look_ups.aborted_transactions(
        log.segments, 0, 3
    )
    assert [h.base_offset for h in iter_batches(again.read_bytes(0, 1 << 20))] == [0, 1, 2]


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_a_snapshot_of_a_transaction_that_compaction_took_does_not_open_it_again(tmp_path, committed) -> None:
    """The broker was stopped in the middle of the transaction, which left a snapshot; it is killed later."""
    log = open_log(tmp_path, COMPACT)
    write(log, b"old", pid=PID, key=b"k")
    log.flush()
    log.close()
    log = open_log(tmp_path, COMPACT)
    log.append_as_leader(batch(b"between", key=b"other"), 0)
    end(log, committed, PID)
    log.append_as_leader(batch(b"new", key=b"k"), 0)
    close_segment(log)
    forget_producers(log)
    for now_ms in (10_000, 20_000, 30_000):
        left = clean(log, now_ms)
    assert bases(left) == [1, 3]
    again = open_log(tmp_path, COMPACT, clean=False, recovery_point=log.recovery_point)
    again.high_watermark = again.log_end_offset
    assert again.last_stable_offset() == again.log_end_offset
    assert not again.producer_state.has_open_transaction(PID)


def test_an_open_transaction_of_a_snapshot_stays_open_though_its_first_batch_is_gone(tmp_path) -> None:
    """After a restart an end that is not replicated yet does not hold back compaction. A truncation may take it."""
    log = open_log(tmp_path, COMPACT)
    write(log, b"old", pid=PID, key=b"k")
    write(log, b"new", pid=PID, sequence=1, key=b"k")
    log.roll()
    end(log, COMMIT, PID)
    log.flush()
    log.close()
    log = open_log(tmp_path, COMPACT)
    log.high_watermark = 2
    assert bases(clean(log, 10_000)) == [1]
    log.truncate_to(2)
    assert log.last_stable_offset() < 2
    assert log.producer_state.has_open_transaction(PID)


def test_what_is_left_of_a_marker_fences_after_a_crash(tmp_path) -> None:
    log = open_log(tmp_path, COMPACT)
    end(log, ABORT, PID, epoch=3)
    close_segment(log)
    clean(log, 10_000)
    (left,) = clean(log, 12_000)
    assert (left.is_control, left.record_count) == (True, 0)
    for path in log.dir.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, COMPACT, clean=False)
    with pytest.raises(KafkaError) as refused:
        write(again, b"zombie", pid=PID, key=b"k", epoch=2)
    assert refused.value.error_code is Errors.INVALID_PRODUCER_EPOCH
