"""What the log's operations return. Plain values, made once per call."""

from __future__ import annotations

from typing import NamedTuple

from broker.utils.file_region import FileRegion


class AppendInfo(NamedTuple):
    """One append. Offsets are the partition's; ``log_append_time`` is -1 unless the topic stamps it (ms).

    ``duplicate``: nothing was written, the offsets are those the same batch got before. ``first_offset`` is
    -1 when the append held no whole batch.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool
    size_bytes: int
    record_count: int
    last_leader_epoch: int


class LogRead(NamedTuple):
    """A stretch of one segment, from the start of the batch that holds the asked offset.

    ``region`` is None when there is nothing to read. It may end inside a batch (as in Kafka: the client drops
    that part). ``first_batch_incomplete``: there was data, but its first batch is larger than ``max_bytes``.
    """

    region: FileRegion | None
    base_offset: int
    size: int
    first_batch_incomplete: bool = False


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms, -1 none) and offset, with the leader epoch of its batch (-1 unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ends; both -1 when the log knows nothing about the asked one."""

    leader_epoch: int
    end_offset: int


class AbortedTransaction(NamedTuple):
    """A producer's aborted transaction, from its first record to its marker, as the ``.txnindex`` keeps
    it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
