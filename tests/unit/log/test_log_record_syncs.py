"""Records are synced by their ``.log`` file alone, and what a power loss leaves of the other files is made again."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.log import AppendOrigin, Log
from broker.log.results import AbortedTransaction
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from rig.wait import wait_until
from tests.support.gate import WAIT_S, Gate
from tests.support.logs import TP, batch, contents, managed, open_log

EVERY_BATCH = LogConfig(index_interval_bytes=1, flush_messages=1)
ABORT = b"\0\0\0\0"


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(batch(b"v" * 50, timestamp=1_000 + log.log_end_offset), 0)
        log.sync_records()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are synced."""
    names: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}

    def noting(name: str) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
            real[name](fd)

        return sync

    for name in real:
        monkeypatch.setattr(os, name, noting(name))
    return names


# -- what is synced before an answer


def test_records_are_synced_without_their_indexes(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path, EVERY_BATCH)
    append(log)
    before = log.recovery_point
    del synced[:]
    append(log, 3)
    assert synced == [f"{0:020d}.log"] * 3
    assert (log.durability.synced_end, log.recovery_point) == (4, before)
    assert (log.durability.flush_due, log.durability.committable_end) == (False, 4)


def test_the_first_records_are_synced_with_the_names_by_which_they_are_found(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path, EVERY_BATCH)
    append(log)
    assert {f"{0:020d}.log", "t-0", tmp_path.name} <= set(synced)


def test_a_roll_has_the_older_segment_synced_with_its_indexes(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path, EVERY_BATCH)
    append(log, 5)
    log.roll()
    del synced[:]
    append(log)
    assert {f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex")} <= set(synced)
    assert {f"{5:020d}.log", "t-0"} <= set(synced)
    assert log.recovery_point == log.durability.synced_end == 6


def test_records_after_a_truncation_are_synced_with_the_names_that_it_changed(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path, EVERY_BATCH)
    append(log, 5)
    log.truncate_to(3)
    assert log.durability.synced_end == 3
    del synced[:]
    append(log)
    assert "t-0" in synced
    assert log.durability.synced_end == 4


def test_a_truncation_during_a_sync_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, EVERY_BATCH)
    append(log, 3)
    log.append_as_leader(batch(b"a"), 0)
    gate = Gate(monkeypatch, os, "fdatasync")
    with gate.held_by(log.sync_records):
        log.truncate_to(2)
        log.append_as_leader(batch(b"b"), 1)
        assert (log.durability.synced_end, log.durability.committable_end) == (2, 2)
    assert log.durability.synced_end == log.log_end_offset == 3


def test_a_failed_sync_of_records_is_a_storage_error_and_the_directory_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, EVERY_BATCH)
    append(log)
    log.append_as_leader(batch(b"lost"), 0)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(KafkaError) as error:
            log.sync_records()
    assert error.value.error_code is Errors.KAFKA_STORAGE_ERROR
    assert log.health.failure is not None
    for again in (log.sync_records, log.flush):  # of which the kernel would say that all is well
        with pytest.raises(KafkaError, match="Input/output error"):
            again()
    assert (log.durability.synced_end, log.durability.committable_end) == (1, 1)


def test_a_sync_of_records_flushes_for_those_whom_it_keeps_waiting(tmp_path: Path) -> None:
    """One such sync follows the other, and each takes the lock before a thread that waits to flush."""
    log = open_log(tmp_path, EVERY_BATCH)
    append(log, 2)
    assert log.recovery_point == 1
    with ThreadPoolExecutor(1) as pool, log.durability.flushing:
        flushed = pool.submit(log.flush)
        wait_until(lambda: log.durability._flushers, WAIT_S)
        log.durability._flush_for_others()
        flushed.result(WAIT_S)
    assert (log.recovery_point, log.durability._flushers) == (2, 0)


# -- what a checkpoint and a stop leave


def test_a_checkpoint_takes_the_recovery_point_up_to_what_was_synced(
    tmp_path: Path, synced: list[str]
) -> None:
    manager = managed(tmp_path, EVERY_BATCH)
    log = manager.get_or_create(TP, None)
    append(log, 10)
    del synced[:]
    manager.checkpoint_recovery_points()
    assert log.recovery_point == 10
    assert f"{0:020d}.index" in synced
    assert "t 0 10" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    del synced[:]
    manager.checkpoint_recovery_points()
    assert not [name for name in synced if name.startswith("0")], "nothing new, nothing to sync"


def test_a_log_that_cannot_be_synced_does_not_keep_the_others_from_their_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path, EVERY_BATCH)
    log = manager.get_or_create(TP, None)
    append(log, 3)
    before = log.recovery_point

    def fail(_segment: Segment) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Segment, "sync", fail)
    manager.checkpoint_recovery_points()
    assert f"t 0 {before}" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


# -- what a power loss may leave of the other files


Facts = tuple[list[tuple[int, bytes | None]], list[AbortedTransaction], dict[int, tuple[object, ...]]]


def garbage(rng: random.Random, lost: bytes) -> bytes:
    return rng.randbytes(max(len(lost), 200))


DAMAGES: dict[str, Callable[[random.Random, bytes], bytes | None]] = {
    "none of it": lambda _, lost: None,
    "shorter, within an entry": lambda _, lost: lost[: max(len(lost) // 2, 5) | 1],
    "longer, by zeros": lambda _, lost: lost + bytes(960),
    "zeros": lambda _, lost: bytes(max(len(lost), 96)),
    "garbage": garbage,
    "garbage behind it": lambda rng, lost: lost + rng.randbytes(333),
    "all of it": lambda _, lost: lost,
}
KINDS = (".index", ".timeindex", ".txnindex", ".snapshot")


def transact(log: Log, producer: int, outcome: bytes) -> None:
    state = log.producer_state.producers.get(producer)
    sequence = state.batches[-1].last_sequence + 1 if state is not None and state.batches else 0
    options = {"producer_id": producer, "producer_epoch": 0}
    log.append_as_leader(batch(b"t" * 40, base_sequence=sequence, transactional=True, **options), 0)
    marker = batch(b"\0\0\0\0\0\1", key=outcome, transactional=True, control=True, **options)
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)


def write(log: Log, number: int) -> None:
    for producer in (1, 2):
        transact(log, producer, ABORT if (number + producer) % 2 else b"\0\0\0\1")
    append(log)


def facts(log: Log) -> Facts:
    """The records, the aborted transactions, and what is known of the producers."""
    aborted = look_ups.aborted_transactions(log.segments, 0, 1 << 62)
    producers = {
        number: (entry.epoch, entry.last_timestamp, list(entry.batches)[-1:])
        for number, entry in log.producer_state.producers.items()
    }
    return contents(log), list(aborted), producers


def check_indexes(log: Log) -> None:
    for segment in log.segments:
        headers = dict(segment.headers_from(0))
        for relative, position in segment.offset_index.file:
            assert headers[position].last_offset == segment.base_offset + relative
        ends = {header.last_offset: header.max_timestamp for header in headers.values()}
        for timestamp, relative in segment.time_index.file:
            assert ends[segment.base_offset + relative] == timestamp
        assert segment.largest_noted_timestamp == max(ends.values(), default=-1)


def common(kept: bytes, own: bytes) -> bytes:
    """What both begin with."""
    parts = next((at for at, pair in enumerate(zip(kept, own, strict=False)) if pair[0] != pair[1]), None)
    return own[: min(len(kept), len(own)) if parts is None else parts]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [*KINDS, "all"])
@pytest.mark.parametrize("recovery_point", ["none", "within the segment", "an older segment"])
def test_whatever_is_left_of_files_that_were_not_synced_the_log_is_as_it_was(
    tmp_path: Path, recovery_point: str, kind: str, damage: str
) -> None:
    log = open_log(tmp_path / "site", EVERY_BATCH)
    durable: dict[str, bytes] = {}
    point = 0
    for number in range(12):
        if number == 6 and recovery_point != "none":
            log.flush()
            point = log.recovery_point
            durable = {path.name: path.read_bytes() for path in log.dir.iterdir()}
        if number in {4, 8} and recovery_point == "an older segment":
            log.roll()
        write(log, number)
    log.durability._segments.active.write_indexes()
    assert log.durability.synced_end == log.log_end_offset
    before = facts(log)
    rng = random.Random(f"{recovery_point} {kind} {damage}")
    shutil.copytree(tmp_path / "site" / "t-0", tmp_path / "left" / "t-0")
    for path in (tmp_path / "left" / "t-0").iterdir():
        if path.suffix == kind or (kind == "all" and path.suffix in KINDS):
            kept = durable.get(path.name)
            # A preallocated index was durable with its zeros; entries come in their place.
            own = path.read_bytes()
            if own == kept:
                continue  # nothing was written since
            prefix = b"" if kept is None else common(kept, own)
            left = DAMAGES[damage](rng, own[len(prefix) :])
            if left is not None:
                path.write_bytes(prefix + left)
            elif kept is None:
                path.unlink()
            else:
                path.write_bytes(kept)
    again = open_log(tmp_path / "left", EVERY_BATCH, clean=False, recovery_point=point)
    assert facts(again) == before
    check_indexes(again)
    append(again)
    again.close()
    once_more = open_log(tmp_path / "left", EVERY_BATCH)
    assert contents(once_more)[:-1] == before[0]
    check_indexes(once_more)
