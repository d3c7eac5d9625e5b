"""Transactional batches and markers, as producers and coordinators have them appended to a log."""

from __future__ import annotations

from collections import deque

from broker.log.log import AppendInfo, Log
from broker.log.look_ups import read_region
from broker.log.producers.markers import TransactionMarker, build_marker, read_marker
from broker.log.producers.verification import VerificationGuard
from broker.record.batch import Record, iter_batches, iter_records
from broker.record.validator import AppendOrigin
from tests.support.logs import batch

ABORT, COMMIT = False, True


def transactional(
    *values: bytes, pid: int, sequence: int = 0, epoch: int = 0, key: bytes | None = None
) -> memoryview:
    """A transactional batch of a client."""
    return batch(
        *values, key=key, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )


def marker(committed: bool, pid: int, *, epoch: int = 0, coordinator: int = 0) -> memoryview:
    """A coordinator's marker."""
    return build_marker(pid, epoch, TransactionMarker(committed, coordinator), 1000)


def write(
    log: Log,
    *values: bytes,
    pid: int,
    sequence: int = 0,
    epoch: int = 0,
    key: bytes | None = None,
    guard: VerificationGuard | None = None,
) -> AppendInfo:
    """Appends a client's transactional batch."""
    checked = log.appender.check(
        transactional(*values, pid=pid, sequence=sequence, epoch=epoch, key=key), AppendOrigin.CLIENT
    )
    return log.appender.append_checked(checked, 0, guard)


def end(log: Log, committed: bool, pid: int, *, epoch: int = 0, coordinator: int = 0) -> AppendInfo:
    """Appends a marker."""
    view = marker(committed, pid, epoch=epoch, coordinator=coordinator)
    return log.append_as_leader(view, 0, origin=AppendOrigin.COORDINATOR)


def read_committed(log: Log, max_bytes: int = 1 << 20) -> list[Record]:
    """What a consumer with isolation.level=read_committed returns, by fetches of ``max_bytes``."""
    found: list[Record] = []
    offset, stable = log.log_start_offset, log.last_stable_offset()
    while offset < stable:
        read, found_aborted, stable = log.reader.read_committed(offset, max_bytes, min_one_batch=True)
        aborted = deque(found_aborted)
        view = memoryview(b"" if read.region is None else read_region(read.region))
        position, offset = 0, stable if not view else offset
        open_ids: set[int] = set()
        start = offset
        for header in iter_batches(view):
            while aborted and aborted[0].first_offset <= header.base_offset:
                open_ids.add(aborted.popleft().producer_id)
            if header.is_control:
                marker = read_marker(view, position, header)
                if marker is not None and not marker.committed:
                    open_ids.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in open_ids):
                records = iter_records(view, header, position)
                found += [record for record in records if record.offset >= start]
            position += header.size_bytes
            offset = header.next_offset
    return found
