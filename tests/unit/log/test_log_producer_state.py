"""Idempotent producers: retries are recognised, disorder and old epochs refused, across restarts."""

from __future__ import annotations

import struct

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.free_space import FreeSpaceFloor, check_free_space
from broker.log.producers.producer_snapshot import (
    SnapshotError,
    read_snapshot,
    snapshot_offsets,
    write_snapshot,
)
from broker.log.producers.producer_state import BatchMetadata, ProducerEntry, ProducerStateManager
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from broker.record.header import read_header
from broker.record.validator import AppendOrigin
from broker.utils.scheduler import KafkaScheduler
from rig.wait import wait_until
from tests.support.allocations import allocations
from tests.support.clocks import ManualClock
from tests.support.logs import batch, open_log

INT_MAX = (1 << 31) - 1
COUNTED = 5_000


def send(log, sequence, values=(b"v",), epoch=0, pid=7, timestamp=1000):
    view = batch(*values, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, timestamp=timestamp)
    return log.append_as_leader(view, 0)


def refusal(log, *args, **kwargs) -> Errors:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as raised:
        send(log, *args, **kwargs)
    assert log.log_end_offset == end
    return raised.value.error_code


def test_a_retry_of_any_of_the_last_five_batches_is_a_duplicate_with_its_offsets(tmp_path):
    log = open_log(tmp_path)
    for n in range(6):
        send(log, 2 * n, (b"a", b"b"), timestamp=100 + n)
    for n in range(1, 6):
        info = send(log, 2 * n, (b"a", b"b"))
        assert info.duplicate
        assert (info.first_offset, info.last_offset, info.max_timestamp) == (2 * n, 2 * n + 1, 100 + n)
    assert refusal(log, 0, (b"a", b"b")) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_a_gap_in_sequences_is_refused(tmp_path):
    log = open_log(tmp_path)
    send(log, 0)
    assert refusal(log, 2) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 1).duplicate


def test_an_unknown_producer_may_begin_anywhere(tmp_path):
    log = open_log(tmp_path)
    assert send(log, 500).first_offset == 0
    assert send(log, 501).first_offset == 1


def test_sequences_wrap_to_zero(tmp_path):
    log = open_log(tmp_path)
    send(log, INT_MAX - 1, (b"a", b"b", b"c"))  # INT_MAX - 1, INT_MAX, 0
    assert log.producer_state.producers[7].last_sequence == 0
    assert send(log, INT_MAX - 1, (b"a", b"b", b"c")).duplicate
    assert refusal(log, 2) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1).first_offset == 3


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(tmp_path):
    log = open_log(tmp_path)
    send(log, 0, epoch=3)
    assert refusal(log, 1, epoch=2) is Errors.INVALID_PRODUCER_EPOCH
    assert refusal(log, 1, epoch=4) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=4)
    assert refusal(log, 1, epoch=3) is Errors.INVALID_PRODUCER_EPOCH


def test_several_batches_of_one_producer_in_one_append_are_checked_in_turn(tmp_path):
    log = open_log(tmp_path)

    def both(first, second):
        parts = (batch(b"v", producer_id=7, producer_epoch=0, base_sequence=n) for n in (first, second))
        return log.append_as_leader(memoryview(bytearray(b"".join(map(bytes, parts)))), 0)

    assert both(0, 1).last_offset == 1
    assert both(0, 1).duplicate
    with pytest.raises(KafkaError) as raised:
        both(2, 4)
    assert raised.value.error_code is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(KafkaError) as raised:
        both(1, 2)
    assert raised.value.error_code is Errors.DUPLICATE_SEQUENCE_NUMBER
    assert log.log_end_offset == 2


def test_a_failed_append_does_not_move_the_sequence(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    send(log, 0)
    monkeypatch.setattr("os.pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert refusal(log, 1) is Errors.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    check_free_space(FreeSpaceFloor(0, 0), [log.health])
    assert not send(log, 1).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_a_retry_after_a_restart_is_still_a_duplicate(tmp_path, clean):
    log = open_log(tmp_path)
    send(log, 0)
    send(log, 1)
    if clean:
        log.close()
        assert snapshot_offsets(log.dir) == [2]
    again = open_log(tmp_path, clean=clean)
    assert send(again, 1).duplicate
    earlier = send(again, 0)
    assert (earlier.duplicate, earlier.first_offset) == (True, 0)
    assert refusal(again, 5) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(again, 2).first_offset == 2


def test_truncation_takes_the_sequence_back(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=200))
    for n in range(10):
        send(log, n)
    log.truncate_to(4)
    assert log.producer_state.producers[7].last_sequence == 3
    assert send(log, 4).first_offset == 4
    log.truncate_to(0)
    assert log.producer_state.producers == {}


def test_a_follower_learns_the_sequences_for_when_it_leads(tmp_path):
    leader, follower = open_log(tmp_path / "l"), open_log(tmp_path / "f")
    send(leader, 0)
    send(leader, 1)
    follower.append_as_follower(memoryview(bytes(leader.read_bytes(0, 10_000))))
    assert send(follower, 1).duplicate
    assert send(follower, 2).first_offset == 2


def test_silent_producers_are_forgotten(tmp_path):
    clock = ManualClock(10_000)
    log = open_log(tmp_path, clock=clock, producer_expiration_ms=5000)
    send(log, 0, timestamp=9_000)
    clock.now_ms = 13_999
    assert log.producers.expire() == 0
    clock.now_ms = 14_000
    assert log.producers.expire() == 1
    assert send(log, 77).first_offset == 1


def test_a_damaged_snapshot_is_passed_over_and_the_state_read_from_the_batches(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=200))
    for n in range(10):
        send(log, n)
    log.close()
    latest = snapshot_offsets(log.dir)[-1]
    path = log.dir / f"{latest:020d}.snapshot"
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    again = open_log(tmp_path, LogConfig(segment_bytes=200))
    assert again.producer_state.producers[7].last_sequence == 9


def test_snapshots_are_kafkas_format(tmp_path):
    entry = ProducerEntry(1005, 2)
    entry.add(BatchMetadata(135, 274, 67, 99))
    entry.last_timestamp = 99
    entry.coordinator_epoch = 4
    entry.current_txn_first_offset = 207
    path = tmp_path / "00000000000000000300.snapshot"
    write_snapshot(path, [entry], sync=False)
    data = path.read_bytes()
    assert struct.unpack(">hIi", data[:10])[::2] == (1, 1)
    assert struct.unpack(">qhiqiqiq", data[10:]) == (1005, 2, 135, 274, 67, 99, 4, 207)
    (again,) = read_snapshot(path)
    assert (again.batches[0].first_offset, again.current_txn_first_offset) == (207, 207)


def test_a_snapshots_last_row_of_a_producer_is_what_kafka_would_have_written(tmp_path):
    entry = ProducerEntry(1005, 2)
    for n in range(7):
        entry.add(BatchMetadata(n, n, 0, 100 + n))
    entry.last_timestamp = 120  # a marker's
    path = tmp_path / "00000000000000000007.snapshot"
    write_snapshot(path, [entry], sync=False)
    rows = list(struct.iter_unpack(">qhiqiqiq", path.read_bytes()[10:]))
    assert rows[-1] == (1005, 2, 6, 6, 0, 120, -1, -1)
    assert [row[2] for row in rows] == [2, 3, 4, 5, 6]
    (again,) = read_snapshot(path)
    assert [batch.last_sequence for batch in again.batches] == [2, 3, 4, 5, 6]
    assert (again.last_sequence, again.last_timestamp) == (6, 120)


@pytest.mark.parametrize("damage", [b"", b"\0\1", b"\0\2" + bytes(8), b"\0\1" + bytes(8)])
def test_what_is_no_snapshot_is_refused(tmp_path, damage):
    path = tmp_path / "00000000000000000001.snapshot"
    path.write_bytes(damage)
    with pytest.raises(SnapshotError):
        list(read_snapshot(path))


def marker(kind: int, pid: int, offset_epoch: int = 0):
    record = Record(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, offset_epoch), (), 1000)
    return memoryview(
        bytearray(build_batch([record], producer_id=pid, producer_epoch=0, transactional=True, control=True))
    )


def transactional(log, sequence, pid):
    view = batch(b"t", producer_id=pid, producer_epoch=0, base_sequence=sequence, transactional=True)
    return log.append_as_leader(view, 0, origin=AppendOrigin.COORDINATOR)


def test_open_and_unreplicated_transactions_hold_back_the_last_stable_offset(tmp_path):
    log = open_log(tmp_path)
    send(log, 0, pid=1)
    transactional(log, 0, 2)  # offset 1
    transactional(log, 0, 3)  # offset 2
    log.high_watermark = 3
    assert log.last_stable_offset() == 1
    log.append_as_leader(marker(1, 2), 0, origin=AppendOrigin.COORDINATOR)  # commit, offset 3
    assert log.last_stable_offset() == 1
    log.high_watermark = 4
    assert log.last_stable_offset() == 2
    log.append_as_leader(marker(0, 3), 0, origin=AppendOrigin.COORDINATOR)  # abort, offset 4
    log.high_watermark = 5
    assert log.last_stable_offset() == 5
    assert [tuple(t) for t in look_ups.aborted_transactions(log.segments, 0, 5)] == [(3, 2, 4, 5)]
    assert look_ups.aborted_transactions(log.segments, 0, 2) == []
    again = open_log(tmp_path, clean=False)
    assert [tuple(t) for t in look_ups.aborted_transactions(again.segments, 0, 5)] == [(3, 2, 4, 5)]


def test_ids_that_nobody_gave_out_have_no_more_memory_than_is_told(tmp_path):
    log = open_log(tmp_path, max_producers=100)
    for pid in range(1000):
        send(log, 0, pid=pid)
    known = log.producer_state.producers
    assert 90 <= len(known) <= 100
    assert min(known) >= 900


def test_who_writes_is_not_forgotten_for_those_who_only_come(tmp_path):
    log = open_log(tmp_path, max_producers=20)
    for n in range(200):
        send(log, n, pid=7)
        send(log, 0, pid=1000 + n)
    assert send(log, 199, pid=7).duplicate
    assert refusal(log, 205, pid=7) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_who_was_forgotten_goes_on_like_a_new_producer(tmp_path):
    log = open_log(tmp_path, max_producers=10)
    for n in range(5):
        send(log, n, pid=7)
    for pid in range(1000, 1020):
        send(log, 0, pid=pid)
        send(log, 1, pid=pid)
    assert 7 not in log.producer_state.producers
    assert not send(log, 5, pid=7).duplicate


def test_a_snapshot_of_more_ids_than_are_kept_is_read_up_to_the_bound(tmp_path):
    log = open_log(tmp_path)
    for pid in range(300):
        send(log, 0, pid=pid)
    log.close()
    known = open_log(tmp_path, max_producers=100).producer_state.producers
    assert len(known) <= 100
    assert max(known) == 299


def test_ids_that_are_made_up_do_not_displace_producers_that_write_on(tmp_path):
    log = open_log(tmp_path, max_producers=100)
    for pid in range(20):
        send(log, 0, pid=pid)
        send(log, 1, pid=pid)
    for pid in range(1000, 3000):
        send(log, 0, pid=pid)
    for pid in range(20):
        assert send(log, 0, pid=pid).duplicate
        assert refusal(log, 5, pid=pid) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not send(log, 2, pid=pid).duplicate


def test_a_producer_that_has_just_come_is_not_forgotten_for_many_old_ones(tmp_path):
    log = open_log(tmp_path, max_producers=100)
    for pid in range(99):
        send(log, 0, pid=pid)
        send(log, 1, pid=pid)
    send(log, 0, pid=500)
    send(log, 0, pid=501)
    assert {500, 501} <= log.producer_state.producers.keys()
    assert 0 not in log.producer_state.producers


@pytest.fixture
def scheduler():
    running = KafkaScheduler(1)
    running.startup()
    yield running
    running.shutdown()


def test_a_roll_does_not_write_down_many_producers_and_they_are_known_after_a_crash(tmp_path, scheduler):
    config = LogConfig(segment_bytes=20_000)
    log = open_log(tmp_path, config, scheduler=scheduler)
    pid = 0
    while log.num_segments == 1:
        send(log, 0, pid=pid)
        pid += 1
    assert pid > 200
    assert snapshot_offsets(log.dir) == []
    send(log, 1, pid=pid - 1)
    wait_until(lambda: bool(snapshot_offsets(log.dir)), 30)
    (offset,) = snapshot_offsets(log.dir)
    entries = {entry.producer_id: entry for entry in read_snapshot(log.dir / f"{offset:020d}.snapshot")}
    assert offset == log.log_end_offset
    assert entries.keys() == log.producer_state.producers.keys()
    assert entries[pid - 1].last_sequence == 1
    send(log, 2, pid=pid - 1)
    again = open_log(tmp_path, config, clean=False)
    assert send(again, 0, pid=0).duplicate
    assert send(again, 2, pid=pid - 1).duplicate
    assert refusal(again, 4, pid=pid - 1) is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_no_snapshot_tells_of_what_was_truncated_since_the_roll(tmp_path, scheduler):
    config = LogConfig(segment_bytes=20_000)
    log = open_log(tmp_path, config, scheduler=scheduler)
    pid = 0
    while log.num_segments == 1:
        send(log, 0, pid=pid)
        pid += 1
    log.truncate_to(5)
    wait_until(lambda: bool(snapshot_offsets(log.dir)), 30)
    assert snapshot_offsets(log.dir) == [5]
    assert {entry.producer_id for entry in read_snapshot(log.dir / f"{5:020d}.snapshot")} == set(range(5))


def test_a_producer_takes_half_a_kilobyte_of_memory():
    producers = ProducerStateManager(expiration_ms=1_000, max_producers=COUNTED)
    sent = batch(b"v", producer_id=1 << 40, producer_epoch=0, base_sequence=0)
    header = read_header(sent)
    with allocations() as taken:
        for number in range(COUNTED):
            one = header._replace(producer_id=(1 << 40) + number, max_timestamp=1_700_000_000_000 + number)
            producers.update(one, (1 << 40) + number)
        assert taken() < 512 * COUNTED
