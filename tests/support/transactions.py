"""Transactional batches and markers, as producers and coordinators have them appended to a log."""

from __future__ import annotations

from broker.log.log import AppendInfo, Log
from broker.log.producers.markers import TransactionMarker, build_marker
from broker.log.producers.verification import VerificationGuard
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
