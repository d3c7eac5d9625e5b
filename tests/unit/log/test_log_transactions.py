"""Transactions on one log: which batches and markers are accepted, and what holds back the stable offset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.log import Log
from broker.log.look_ups import read_region
from broker.log.producers.open_transactions import OpenTransactions
from broker.log.producers.producer_snapshot import encode_snapshot
from broker.log.producers.verification import NOT_VERIFIED, Verifications
from broker.log.results import AbortedTransaction, LogRead
from broker.log.segments import txn_index
from broker.log.segments.batch_file import LOG_SUFFIX
from broker.log.segments.txn_index import TransactionIndex
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from broker.record.validator import AppendOrigin
from tests.support.clocks import ManualClock
from tests.support.logs import batch, open_log, unlimited
from tests.support.transactions import ABORT, COMMIT, end, write

PID = 7


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path)


def refusal(action, *args, **kwargs) -> Errors:
    with pytest.raises(KafkaError) as raised:
        action(*args, **kwargs)
    return raised.value.error_code


def test_a_marker_of_an_older_epoch_is_refused(log):
    write(log, b"a", pid=PID, epoch=3)
    assert refusal(end, log, COMMIT, PID, epoch=2) is Errors.INVALID_PRODUCER_EPOCH
    end(log, ABORT, PID, epoch=4)
    assert refusal(write, log, b"b", pid=PID, epoch=3, sequence=1) is Errors.INVALID_PRODUCER_EPOCH
    write(log, b"c", pid=PID, epoch=4)


def test_a_marker_of_an_earlier_coordinator_is_refused(log):
    write(log, b"a", pid=PID)
    end(log, COMMIT, PID, coordinator=5)
    assert refusal(end, log, ABORT, PID, coordinator=4) is Errors.TRANSACTION_COORDINATOR_FENCED
    end(log, ABORT, PID, coordinator=5)


def test_a_marker_without_records_ends_nothing_but_fences(log):
    end(log, ABORT, PID, epoch=2)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset() == 1
    assert look_ups.aborted_transactions(log.segments, 0, 1) == []
    assert refusal(write, log, b"a", pid=PID, epoch=1) is Errors.INVALID_PRODUCER_EPOCH
    # After a marker, the producer's sequences begin anew with its epoch.
    assert refusal(write, log, b"a", pid=PID, epoch=2, sequence=4) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, b"a", pid=PID, epoch=2)


def test_records_outside_the_transaction_are_refused_while_it_is_open(log):
    write(log, b"a", pid=PID)
    plain = batch(b"b", producer_id=PID, producer_epoch=0, base_sequence=1)
    assert refusal(log.append_as_leader, plain, 0) is Errors.INVALID_TXN_STATE
    end(log, COMMIT, PID)
    log.append_as_leader(plain, 0)


def test_transactional_records_need_a_producer(log):
    assert refusal(log.append_as_leader, batch(b"a", transactional=True), 0) is Errors.INVALID_RECORD


def test_the_first_batch_of_a_transaction_needs_a_guard_that_is_still_valid(log):
    assert refusal(write, log, b"a", pid=PID, guard=NOT_VERIFIED) is Errors.INVALID_TXN_STATE
    guard = log.producers.begin_verification(PID, 0, 0)
    end(log, ABORT, PID)  # the transaction ends while it is verified
    assert refusal(write, log, b"a", pid=PID, guard=guard) is Errors.INVALID_TXN_STATE
    again = log.producers.begin_verification(PID, 0, 0)
    write(log, b"a", pid=PID, guard=again)
    assert log.producers.begin_verification(PID, 0, 1) is NOT_VERIFIED
    write(log, b"b", pid=PID, sequence=1, guard=NOT_VERIFIED)
    end(log, COMMIT, PID)
    assert refusal(write, log, b"c", pid=PID, sequence=2, guard=again) is Errors.INVALID_TXN_STATE


def test_a_retry_of_an_appended_batch_needs_no_verification(log):
    write(log, b"a", pid=PID)
    end(log, COMMIT, PID)
    assert write(log, b"a", pid=PID, guard=NOT_VERIFIED).duplicate


def test_a_later_batch_waits_for_the_one_whose_verification_failed(log):
    log.producers.begin_verification(PID, 0, 3)
    guard = log.producers.begin_verification(PID, 0, 4)
    assert refusal(write, log, b"b", pid=PID, sequence=4, guard=guard) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, b"a", pid=PID, sequence=3, guard=guard)
    write(log, b"b", pid=PID, sequence=4, guard=NOT_VERIFIED)


def test_a_later_epoch_is_verified_from_its_own_sequence_on(log):
    log.producers.begin_verification(PID, 0, 3)
    guard = log.producers.begin_verification(PID, 1, 9)
    log.producers.begin_verification(PID, 0, 2)  # too late: its epoch is over
    write(log, b"a", pid=PID, epoch=1, sequence=9, guard=guard)


def test_verifications_have_a_bound_and_an_end():
    some = Verifications(2)
    first = some.begin(1, 0, 0, 100)
    some.begin(2, 0, 0, 101)
    assert some.begin(1, 0, 0, 102) is first
    some.begin(3, 0, 0, 103)
    assert not some.holds(1, first)
    some.expire(101)
    assert [some.lowest_sequence(pid) for pid in (1, 2, 3)] == [None, None, 0]


def test_open_transactions_have_a_bound(tmp_path):
    log = open_log(tmp_path, max_producers=3)
    for pid in range(3):
        write(log, b"v", pid=pid)
    assert refusal(write, log, b"v", pid=3) is Errors.NOT_ENOUGH_REPLICAS
    write(log, b"v", pid=0, sequence=1)
    end(log, ABORT, 9)  # a marker is always taken
    end(log, ABORT, 1)
    write(log, b"v", pid=3)


def test_the_stable_offset_is_never_before_the_start_of_the_log(log):
    for sequence in range(4):
        write(log, b"v", pid=PID, sequence=sequence)
    log.high_watermark = 4
    assert log.last_stable_offset() == 0
    log.increment_log_start_offset(2)
    assert log.last_stable_offset() == 2


def test_the_stable_offset_waits_for_the_markers_replication_in_any_order():
    some = OpenTransactions()
    some.begin(10, 1)
    some.begin(12, 2)
    some.end(2, 12, 14)
    assert some.first_unstable_offset(15) == 10
    some.begin(15, 3)
    assert some.end(1, 10, 16).last_stable_offset == 15
    assert some.first_unstable_offset(16) == 10
    assert some.first_unstable_offset(17) == 15
    assert len(some) == 1
    some.end(3, 15, 20)
    assert some.first_unstable_offset(20) == 15
    assert some.first_unstable_offset(21) is None
    assert not some


def test_a_transaction_is_late_five_minutes_after_the_longest_timeout(tmp_path):
    log = open_log(tmp_path, clock=ManualClock(1_000))
    state = log.producer_state
    assert not state.has_late_transaction(10**9, 0)
    write(log, b"v", pid=PID)  # at 1,000 ms
    assert not state.has_late_transaction(1_000 + 900_000 + 300_000, 900_000)
    assert state.has_late_transaction(1_001 + 900_000 + 300_000, 900_000)
    end(log, ABORT, PID)
    assert not state.has_late_transaction(10**9, 900_000)


def test_open_transactions_survive_a_restart_in_their_order(tmp_path):
    log = open_log(tmp_path)
    for pid in (5, 3, 4):
        write(log, b"v", pid=pid)
    end(log, COMMIT, 5)
    log.close()
    again = open_log(tmp_path)
    again.high_watermark = 4
    assert again.last_stable_offset() == 1
    end(again, ABORT, 3)
    again.high_watermark = 5
    assert again.last_stable_offset() == 2
    assert look_ups.aborted_transactions(again.segments, 0, 5) == [AbortedTransaction(3, 1, 4, 2)]


def test_a_large_index_is_not_read_from_its_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(txn_index, "_CHUNK_BYTES", 3 * txn_index.ENTRY_BYTES)
    index = TransactionIndex(tmp_path / "00000000000000000000.txnindex")
    every = [AbortedTransaction(1, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(40)]
    for entry in every:
        index.append(entry)
    assert index.size == 40 * txn_index.ENTRY_BYTES
    for begin in range(0, 420, 3):
        for size in (1, 9, 60, 500):
            found: list[AbortedTransaction] = []
            index.collect(begin, begin + size, found)
            assert found == [t for t in every if t.last_offset >= begin and t.first_offset < begin + size]


def test_a_log_without_aborted_transactions_opens_no_index(log, monkeypatch):
    write(log, b"v", pid=PID)
    monkeypatch.setattr(txn_index.os, "open", None)
    assert look_ups.aborted_transactions(log.segments, 0, 1) == []


def test_a_new_index_is_durable_with_its_name(log, monkeypatch):
    log.flush()
    index = log.segments[0].txn_index
    write(log, b"v", pid=PID)
    end(log, ABORT, PID)
    assert not index.name_synced
    log.flush()
    assert index.name_synced


def many_then_an_aborted_transaction(tmp_path: Path, policy: str) -> tuple[Log, int]:
    """A log of three segments: records, an aborted transaction, the active one; and where the second begins."""
    log = open_log(tmp_path, LogConfig(cleanup_policy=frozenset({policy}), index_interval_bytes=64))
    for number in range(300):
        log.append_as_leader(batch(b"x" * 200, key=b"%d" % number), 0)
    log.roll()
    first = log.log_end_offset
    for number in range(5):
        write(log, b"aborted", pid=PID, key=b"k%d" % number, sequence=number)
    end(log, ABORT, PID)
    log.roll()
    log.append_as_leader(batch(b"active", key=b"active"), 0)
    log.high_watermark = log.log_end_offset
    return log, first


def read_disturbed(
    log: Log, offset: int, monkeypatch: pytest.MonkeyPatch, disturb: Callable[[], object]
) -> tuple[bytes, list[int]]:
    """What is read, and whose transactions were aborted, if this happens before the second is looked up."""
    aborted_in = look_ups.aborted_in

    def disturbed(_: Any, begin: int, read: LogRead, end_offset: int) -> list[AbortedTransaction]:
        monkeypatch.undo()
        disturb()
        return aborted_in(log.segments, begin, read, end_offset)

    monkeypatch.setattr(look_ups, "aborted_in", disturbed)
    read, aborted, _ = log.reader.read_committed(offset, 400, min_one_batch=True)
    assert read.region is not None
    return bytes(read_region(read.region)), [each.producer_id for each in aborted]


def test_records_that_are_compacted_as_they_are_read_come_with_their_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the file that is gone would come without the aborted transaction in it."""
    log, first = many_then_an_aborted_transaction(tmp_path, "compact")

    def compact() -> None:
        ends = log.segments[-1].base_offset
        clean_log(log, 0, ends, OffsetMap(1 << 20), now_ms=10_000, pace=unlimited())

    data, aborted = read_disturbed(log, first, monkeypatch, compact)
    assert b"aborted" not in data or aborted == [PID]


def test_records_that_are_deleted_as_they_are_read_do_not_come_without_their_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first = many_then_an_aborted_transaction(tmp_path, "delete")

    def delete() -> None:
        log.increment_log_start_offset(log.segments[-1].base_offset)
        log.delete_old_segments()

    assert refusal(read_disturbed, log, first, monkeypatch, delete) is Errors.OFFSET_OUT_OF_RANGE


def test_a_log_whose_stable_offset_nobody_asks_for_forgets_transactions_that_are_over(log):
    """Such as a follower's, and a copy on its way to another disk."""
    for number in range(10):
        write(log, b"a", pid=PID, sequence=number)
        end(log, COMMIT, PID)
        log.offsets.mark(log.log_end_offset)
    assert log.producers.state.transactions
    write(log, b"a", pid=PID, sequence=10)
    end(log, COMMIT, PID)
    assert log.producers.state.transactions.first_unstable_offset(0) == 20, (
        "only the last one's marker counts"
    )


def test_verifications_count_as_producers_do_and_go_first(tmp_path):
    clock = ManualClock()
    log = open_log(tmp_path, clock=clock)
    write(log, b"a", pid=PID)
    guards = [log.producers.begin_verification(pid, 0, 0) for pid in range(100, 110)]
    assert log.producers.state.known == 11
    assert log.producers.keep(3) == 8
    verifications = log.producers.state.verifications
    assert [verifications.holds(pid, guard) for pid, guard in enumerate(guards, 100)] == [False] * 8 + [
        True
    ] * 2
    assert log.producers.state.producers.keys() == {PID}
    clock.now_ms += 10 * 60_000
    log.producers.expire()
    assert log.producers.state.known == 1


def test_a_marker_stays_uncompressed_where_the_topic_compresses(tmp_path):
    log = open_log(tmp_path, LogConfig(compression_type="zstd"))
    write(log, b"a" * 1000, pid=PID)
    end(log, COMMIT, PID)
    headers = [header for _, header in log.segments[0].headers_from(0)]
    assert [(header.is_control, header.codec_id) for header in headers] == [(False, 4), (True, 0)]
    assert headers[1].last_sequence == -1


def test_zeros_that_a_power_loss_left_in_the_index_keep_no_abort_there_twice(tmp_path):
    each_batch_indexed = LogConfig(index_interval_bytes=1)
    log = open_log(tmp_path, each_batch_indexed)
    aborts = [aborted_in(log) for _ in range(4)]
    log.close()
    index = log.segments[0].txn_index.path
    with index.open("ab") as file:
        file.write(bytes(2 * txn_index.ENTRY_BYTES))
    again = open_log(tmp_path, each_batch_indexed, clean=False, recovery_point=aborts[2])
    assert [each.last_offset for each in again.segments[0].txn_index.entries()] == aborts


def aborted_in(log: Log) -> int:
    """The offset of the marker of another aborted transaction."""
    pid = log.log_end_offset
    write(log, b"a", pid=pid)
    end(log, ABORT, pid)
    return log.log_end_offset - 1


# -- markers that are cut short


def cut_marker(base_offset: int = 0, key: bytes = b"\0\0\0\1") -> memoryview:
    """A control batch with a valid checksum, whose record ends within the marker's value, or in its key before."""
    record = Record(key, b"\0\0\0", (), 1000)
    options: dict[str, Any] = {
        "producer_id": PID,
        "producer_epoch": 0,
        "transactional": True,
        "control": True,
    }
    return memoryview(bytearray(build_batch([record], base_offset=base_offset, **options)))


def test_a_leader_refuses_a_marker_that_is_cut_short_before_it_is_written(log):
    write(log, b"a", pid=PID)
    append = partial(log.append_as_leader, cut_marker(), 0)
    assert refusal(append, origin=AppendOrigin.COORDINATOR) is Errors.CORRUPT_MESSAGE
    assert refusal(append, origin=AppendOrigin.CLIENT) is Errors.INVALID_RECORD
    assert log.log_end_offset == 1
    end(log, COMMIT, PID)


def test_a_follower_takes_what_comes_before_a_marker_that_is_cut_short(log, tmp_path):
    write(log, b"a", pid=PID)
    fetched = memoryview(bytes(log.read_bytes(0, 1 << 20)) + bytes(cut_marker(1)))
    follower = open_log(tmp_path / "follower")
    assert follower.append_as_follower(fetched).last_offset == 0
    assert refusal(follower.append_as_follower, cut_marker(1)) is Errors.CORRUPT_MESSAGE
    assert follower.log_end_offset == 1
    assert follower.producer_state.has_open_transaction(PID)


@pytest.fixture(
    params=["after a crash", "after a clean stop without snapshots", "after the index was written"]
)
def load_again(request, tmp_path):
    """Loads the log of ``tmp_path`` again, as after a stop."""

    def load(log: Log) -> Log:
        log.flush()
        if request.param == "after a crash":
            return open_log(tmp_path, clean=False)
        if request.param == "after the index was written":
            return open_log(tmp_path, clean=False, recovery_point=log.log_end_offset)
        # Kafka would read the batches too: the only snapshot is the one before them.
        log.producers.take_snapshot()
        for snapshot in log.dir.glob("*.snapshot"):
            snapshot.write_bytes(b"damaged")
        return open_log(tmp_path)

    return load


def with_cut_marker(log: Log, key: bytes) -> None:
    """Three transactions; the first one ends with a cut marker, the second one is aborted, the last one is open."""
    write(log, b"first", pid=PID)
    end(log, COMMIT, PID, coordinator=3)
    write(log, b"second", pid=PID, sequence=1)
    view = cut_marker(log.log_end_offset, key)
    view[12:16] = bytes(4)  # the leader epoch
    log.segments[0].append(view, [(3, 3, len(view), 1000)], 4096)
    log.offsets.end = 4
    write(log, b"other", pid=PID + 1)
    end(log, ABORT, PID + 1)
    write(log, b"open", pid=PID + 2)


@pytest.mark.parametrize(
    ("key", "taken_as", "stable"),
    [(b"\0\0\0\1", "commit", 6), (b"\0\0\0\0", "abort", 6), (b"\0\0\0", "nothing", 2), (b"", "nothing", 2)],
)
def test_a_log_with_a_marker_that_is_cut_short_is_loaded(log, load_again, capsys, key, taken_as, stable):
    with_cut_marker(log, key)
    loaded = load_again(log)
    loaded.high_watermark = loaded.log_end_offset
    assert loaded.log_end_offset == 7
    assert loaded.last_stable_offset() == stable
    assert loaded.producer_state.has_open_transaction(PID) == (taken_as == "nothing")
    assert not loaded.producer_state.has_open_transaction(PID + 1)
    assert loaded.producer_state.has_open_transaction(PID + 2)
    aborted = look_ups.aborted_transactions(loaded.segments, 0, 7)
    own = [(PID, 2, 3)] if taken_as == "abort" else []
    assert [each[:3] for each in aborted] == [*own, (PID + 1, 4, 5)]
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "marker_unreadable" in line]
    for part in (f"taken_as={taken_as}", "offset=3", "00000000000000000000.log"):
        assert part in line
    # A marker of the coordinator ends what is still open, and an earlier coordinator stays fenced.
    assert refusal(end, loaded, ABORT, PID, coordinator=2) is Errors.TRANSACTION_COORDINATOR_FENCED
    end(loaded, ABORT, PID, coordinator=3)
    loaded.high_watermark = loaded.log_end_offset
    assert loaded.last_stable_offset() == 6


@pytest.mark.parametrize(("clean", "index_interval_bytes"), [(True, 4096), (False, 4096), (False, 1)])
@pytest.mark.parametrize("byte", [10, 61, 69])
def test_a_marker_with_a_flipped_bit_costs_no_more_than_itself(
    tmp_path, capsys, clean, index_interval_bytes, byte
):
    """The bit is in the batch's length, the record's length or the type of the marker."""
    config = LogConfig(index_interval_bytes=index_interval_bytes)
    log = open_log(tmp_path, config)
    write(log, b"aborted", pid=PID)
    before = log.segments[0].size
    end(log, ABORT, PID)
    write(log, b"other", pid=PID + 1)
    end(log, ABORT, PID + 1)
    write(log, b"open", pid=PID + 2)
    log.roll()
    log.flush()
    path = log.segments[0].path(LOG_SUFFIX)
    data = bytearray(path.read_bytes())
    data[before + byte] ^= 1
    path.write_bytes(data)
    for snapshot in log.dir.glob("*.snapshot"):
        snapshot.unlink()
    (log.dir / f"{0:020d}.snapshot").write_bytes(encode_snapshot([]))
    loaded = open_log(tmp_path, config, clean=clean, recovery_point=log.log_end_offset)
    loaded.high_watermark = loaded.log_end_offset
    assert loaded.log_end_offset == 5
    assert loaded.producer_state.has_open_transaction(PID)
    assert loaded.last_stable_offset() == 0
    aborted = look_ups.aborted_transactions(loaded.segments, 0, 5)
    own = [(PID, 0, 1)] if clean or index_interval_bytes == 1 else []  # otherwise the index was made again
    assert [each[:3] for each in aborted] == [*own, (PID + 1, 2, 3)]
    assert capsys.readouterr().out.count("log_damaged") == 1
