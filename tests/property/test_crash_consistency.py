"""Power lost at any moment: every prefix of the recorded operations, with what was not synced lost in several
ways, is opened by the real loader and must be a log that keeps its promises.

A sample by default; ``make crash`` (CRASH_SEEDS, CRASH_SHARE=1) tries every prefix and every way of many
workloads. The mutations at the end break a rule of the log on purpose and show that this is seen.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from broker.log import checkpoints, look_ups
from broker.log.checkpoints import read_checkpoint
from broker.log.cleaning import cleaner
from broker.log.durability import Durability
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.log.log_segments import Segments
from broker.log.partition_metadata import read_topic_id
from broker.log.producers.producer_replay import replay
from broker.log.producers.producer_state import ProducerStateManager
from broker.record.batch import Record, build_batch, read_records
from broker.record.header import CRC_START, BatchHeader, iter_batches
from tests.support.crash_workload import (
    DIRECTORY,
    PARTITIONS,
    TOPIC_IDS,
    CompactingWorkload,
    Promise,
    Told,
    Workload,
)
from tests.support.recorded_disk import LOSSES, DiskState

STEPS = 60
SEEDS = int(os.environ.get("CRASH_SEEDS", "2"))
SHARE = float(os.environ.get("CRASH_SHARE", "0.1"))
EXPIRATION_MS = 86_400_000
LEFTOVERS = (".tmp", ".cleaned", ".swap", ".deleted")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: thousands of small directories are written."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="crash-", dir=memory if memory.is_dir() else None))
    yield directory
    shutil.rmtree(directory)


def crash_everywhere(workload: Workload, scratch: Path, share: float, seed: int) -> int:
    """Checks what each moment and loss leave, or a share of them; how many were checked."""
    rng = random.Random(seed)
    disk = DiskState()
    checked = 0
    for moment, op in enumerate(workload.recorder.ops, 1):
        disk.play(op)
        for loss in LOSSES:
            if rng.random() >= share:
                continue
            own = random.Random(f"{seed} {moment} {loss.name}")
            image = scratch / "image"
            disk.write_image(image, loss, own)
            try:
                check_image(image / DIRECTORY, workload, moment, own)
            except BaseException as error:
                error.add_note(
                    f"seed {seed}, after operation {moment} of {len(workload.recorder.ops)} {op._replace(data=b'')}, "
                    f"{loss.name}"
                )
                raise
            finally:
                shutil.rmtree(image)
            checked += 1
    return checked


def check_image(directory: Path, workload: Workload, moment: int, rng: random.Random) -> None:
    if not directory.is_dir():
        assert all(not workload.told[partition].promise_at(moment).durable for partition in PARTITIONS)
        return
    manager = LogManager([str(directory)], workload.config, clock=workload.clock)
    manager.startup()
    check_checkpoints(directory, manager)
    for partition in PARTITIONS:
        told = workload.told[partition]
        log = manager.get(partition)
        if log is None:
            assert not told.promise_at(moment).durable, f"{partition} is gone"
            continue
        check = check_compacted if workload.config.compact else check_log
        check(log, told, told.promise_at(moment))
    for log in manager.all_logs():
        before = log.log_end_offset
        record = Record(b"key", b"after", (), workload.clock.now_ms)
        log.append_as_leader(memoryview(bytearray(build_batch([record]))), 1000)
        log.flush()
        assert [header.base_offset for _, header in batches_of(log)][-1] == before
    ends = {log.topic_partition: log.log_end_offset for log in manager.all_logs()}
    manager.shutdown()
    if rng.random() < 0.2:
        again = LogManager([str(directory)], workload.config, clock=workload.clock)
        again.lock_and_check()
        assert again.clean
        again.startup()
        assert {log.topic_partition: log.log_end_offset for log in again.all_logs()} == ends
        again.shutdown()


def check_checkpoints(directory: Path, manager: LogManager) -> None:
    for path in directory.glob("*-checkpoint"):
        read_checkpoint(path)  # raises
    for log in manager.all_logs():
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        read_checkpoint(log.dir / "leader-epoch-checkpoint")
        assert read_topic_id(log.dir) in (None, TOPIC_IDS[log.topic_partition])
        left = [path.name for path in log.dir.iterdir() if path.name.endswith(LEFTOVERS)]
        assert not left, f"{log.topic_partition}: left behind are {left}"


def batches_of(log: Log) -> list[tuple[bytes, BatchHeader]]:
    found = []
    for segment in log.segments:
        view = segment.read_batches(0, segment.size)
        position = 0
        for header in iter_batches(view):
            data = bytes(view[position : position + header.size_bytes])
            assert crc32c(data[CRC_START:]) == header.crc, f"{log}: batch at {header.base_offset} is damaged"
            found.append((data, header))
            position += header.size_bytes
        assert position == segment.size == segment.path(".log").stat().st_size
    return found


def check_log(log: Log, told: Told, promise: Promise) -> None:
    found = batches_of(log)
    end = log.segments[0].base_offset
    epoch = -1
    for data, header in found:
        assert header.base_offset == end, f"{log}: a batch at {header.base_offset} follows {end}"
        assert data in told.written.get(end, ()), f"{log}: nobody wrote the batch at {end}"
        assert header.leader_epoch >= epoch, f"{log}: epoch {header.leader_epoch} follows {epoch}"
        if header.last_offset >= log.log_start_offset:
            known = log.leader_epochs.epoch_for_offset(max(end, log.log_start_offset))
            # Deleted records may be back whose epochs are forgotten: the log's start is written now and then.
            assert known in {header.leader_epoch, -1}, f"{log}: {log.leader_epochs.entries} of {header}"
        end, epoch = header.next_offset, header.leader_epoch
    assert log.log_end_offset == max(end, log.log_start_offset), f"{log}: its batches end at {end}"
    assert log.log_end_offset >= promise.end_offset, f"{log}: {promise.end_offset} was durable"
    by_base = {header.base_offset: data for data, header in found}
    for base, data in promise.durable.items():
        assert by_base.get(base) == data, f"{log}: the batch at {base} was durable"
    check_indexes(log)
    check_producers(log, [header for _, header in found])
    check_aborted(log, found)


def check_compacted(log: Log, told: Told, promise: Promise) -> None:
    found = batches_of(log)
    end = log.segments[0].base_offset
    latest: dict[bytes | None, int] = {}
    for data, header in found:
        assert header.base_offset >= end, f"{log}: a batch at {header.base_offset} follows {end}"
        end = header.next_offset
        for record in read_records(memoryview(data)):
            assert told.records[record.offset] == (record.key, record.value), f"{log}: {record}"
            latest[record.key] = record.offset
    assert log.log_end_offset >= promise.end_offset, f"{log}: {promise.end_offset} was durable"
    for key, offset in promise.latest.items():
        assert latest.get(key, -1) >= offset, f"{log}: the last word on {key!r} was durable at {offset}"
    check_indexes(log)
    check_producers(log, [header for _, header in found])


def check_indexes(log: Log) -> None:
    for segment in log.segments:
        headers = dict(segment.headers_from(0))
        for relative, position in segment.offset_index.file:
            assert headers[position].last_offset == segment.base_offset + relative, f"{log}: {segment}"
        last = -1
        for timestamp, relative in segment.time_index.file:
            assert timestamp > last
            last = timestamp
            ends = {header.last_offset: header.max_timestamp for header in headers.values()}
            assert ends[segment.base_offset + relative] == timestamp, f"{log}: {segment}"
        latest = max((header.max_timestamp for header in headers.values() if header.record_count), default=-1)
        assert segment.largest_noted_timestamp == latest, f"{log}: {segment}"
        for position, header in headers.items():
            assert segment.find(header.base_offset) == (position, header)


def check_producers(log: Log, headers: list[BatchHeader]) -> None:
    """As rebuilt from the log; of producers whose batches retention deleted more may be known."""
    rebuilt = ProducerStateManager(EXPIRATION_MS)
    replay(rebuilt, log.segments, 0, reindex_from=1 << 62)
    known = log.producer_state.producers
    for producer_id, entry in rebuilt.producers.items():
        assert producer_id in known, f"{log}: producer {producer_id} is forgotten"
        own = known[producer_id]
        assert (own.epoch, own.last_timestamp, own.current_txn_first_offset) == (
            entry.epoch,
            entry.last_timestamp,
            entry.current_txn_first_offset,
        ), f"{log}: producer {producer_id}"
        if entry.batches:
            assert own.batches[-1] == entry.batches[-1], f"{log}: producer {producer_id}"
    if log.config.compact:  # a snapshot may know of batches that were compacted away for one that was lost
        return
    first = log.segments[0].base_offset
    for producer_id in known.keys() - rebuilt.producers.keys():
        assert all(one.last_offset < first for one in known[producer_id].batches), f"{log}: {producer_id}"


def check_aborted(log: Log, found: list[tuple[bytes, BatchHeader]]) -> None:
    first: dict[int, int] = {}
    expected = set()
    for data, header in found:
        if not header.is_transactional:
            continue
        if not header.is_control:
            first.setdefault(header.producer_id, header.base_offset)
        elif (began := first.pop(header.producer_id, None)) is not None and _is_abort(data):
            expected.add((header.producer_id, began, header.last_offset))
    noted = {
        (one.producer_id, one.first_offset, one.last_offset)
        for one in look_ups.aborted_transactions(log.segments, 0, 1 << 62)
    }
    begin = log.segments[0].base_offset
    assert {one[::2] for one in expected} <= {one[::2] for one in noted}, str(log)
    # Of a transaction that began in a deleted segment more is known than can be seen.
    assert {one for one in noted if one[1] >= begin} <= expected, str(log)


def _is_abort(data: bytes) -> bool:
    (record,) = read_records(memoryview(data), include_control=True)
    return record.key == b"\0\0\0\0"


@pytest.mark.timeout(0 if SHARE == 1 else 900)
@pytest.mark.parametrize("workload_type", [Workload, CompactingWorkload])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_loss_at_any_moment_leaves_logs_that_keep_their_promises(
    scratch: Path, seed: int, workload_type: type[Workload]
) -> None:
    workload = workload_type(scratch / "recorded", seed)
    (scratch / "recorded").mkdir()
    workload.run(STEPS)
    checked = crash_everywhere(workload, scratch, SHARE, seed)
    assert checked > 0


# --- mutations: rules of the log broken on purpose, each to be found


def rename_before_sync(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint gets its name before its content is on the disk."""

    def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, data)
        os.close(fd)
        temporary.replace(path)

    patch.setattr(checkpoints, "replace_file", replace_file)


def sync_the_last_segment_alone(patch: pytest.MonkeyPatch) -> None:
    """The recovery point moves past segments that were rolled and not synced."""
    real = Segments.between
    patch.setattr(Segments, "between", lambda *arguments: real(*arguments)[-1:])


def sync_records_of_the_active_segment_alone(patch: pytest.MonkeyPatch) -> None:
    """Records are acknowledged whose segment was rolled before it was synced."""
    patch.setattr(Durability, "_sync_some", _sync_active)


def sync_records_without_the_names(patch: pytest.MonkeyPatch) -> None:
    """Records are acknowledged in files that have no name yet, or beside those that a truncation removed."""

    def sync_all_but_names(self: Durability, up_to: int) -> None:
        if self.synced_end >= self._segments.active.base_offset:
            _sync_active(self, up_to)
        else:
            for segment in self._segments.all:
                os.fdatasync(segment.file.fileno())
            self.synced_end = self._offsets.end

    patch.setattr(Durability, "_sync_some", sync_all_but_names)


def _sync_active(self: Durability, _up_to: int) -> None:
    os.fdatasync(self._segments.active.file.fileno())
    self.synced_end = self._offsets.end


def checkpoint_what_is_synced_without_its_indexes(patch: pytest.MonkeyPatch) -> None:
    def catch_up(self: Durability) -> None:
        self.recovery_point = self.synced_end

    patch.setattr(Durability, "catch_up", catch_up)


def trust_a_closed_log_unsynced(patch: pytest.MonkeyPatch) -> None:
    """The clean marker is written before what closing wrote is on the disk."""
    patch.setattr(LogManager, "_sync_dir", lambda _manager, _log_dir: True)


def truncate_before_the_recovery_point_is_lowered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "_lower_recovery_point", lambda _log, _offset: None)


def compact_by_records_that_may_be_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cleaner.Log, "flush", lambda *_: None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mutation", "workload_type"),
    [
        (rename_before_sync, Workload),
        (sync_the_last_segment_alone, Workload),
        (sync_records_of_the_active_segment_alone, Workload),
        (sync_records_without_the_names, Workload),
        (checkpoint_what_is_synced_without_its_indexes, Workload),
        (trust_a_closed_log_unsynced, Workload),
        (truncate_before_the_recovery_point_is_lowered, Workload),
        (compact_by_records_that_may_be_lost, CompactingWorkload),
    ],
    ids=lambda value: value.__name__,
)
def test_a_broken_rule_is_found(
    scratch: Path, mutation: Callable[[pytest.MonkeyPatch], None], workload_type: type[Workload]
) -> None:
    for seed in range(20):
        recorded = scratch / f"recorded-{seed}"
        recorded.mkdir()
        workload = workload_type(recorded, seed)
        with pytest.MonkeyPatch.context() as patch:
            mutation(patch)
            workload.run(STEPS)
        try:
            crash_everywhere(workload, scratch, 0.1, seed)
        except (AssertionError, ValueError):
            return
    pytest.fail("20 workloads kept their promises")
