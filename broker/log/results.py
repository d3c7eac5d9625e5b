"""The result types of the log's operations."""

from __future__ import annotations

from typing import NamedTuple

from broker.utils.file_region import FileRegion


class AppendInfo:
    """The result of one append. ``log_append_time`` (ms) is -1 unless the topic stamps append times.

    ``duplicate``: nothing was written, and the offsets are those that the same batch got before.
    ``first_offset`` is -1 if the append held no whole batch.
    """

    __slots__ = (
        "duplicate",
        "first_offset",
        "last_leader_epoch",
        "last_offset",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
        "record_count",
        "size_bytes",
    )

    def __init__(
        self,
        *,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        log_append_time: int,
        log_start_offset: int,
        duplicate: bool,
        size_bytes: int,
        record_count: int,
        last_leader_epoch: int,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.size_bytes = size_bytes
        self.record_count = record_count
        self.last_leader_epoch = last_leader_epoch


class LogRead(NamedTuple):
    """A range of one segment, from the start of the batch that holds the requested offset.

    ``region`` is None if there is nothing to read. It may end inside a batch; as in Kafka, the client drops
    that part. ``first_batch_incomplete``: there was data, but its first batch is larger than ``max_bytes``.
    """

    region: FileRegion | None
    base_offset: int
    size: int
    first_batch_incomplete: bool = False


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms, -1 if none) and offset, with its batch's leader epoch (-1 if unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ends; both -1 if the log knows nothing about the requested epoch."""

    leader_epoch: int
    end_offset: int


class AbortedTransaction(NamedTuple):
    """A producer's aborted transaction, from its first record to its marker, as stored in ``.txnindex``."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
