"""The log of a partition on this broker, also while it moves to another log directory (KIP-113)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from broker.log.log import Log
from broker.log.log_appender import FetchedBatches
from broker.log.segments.batch_file import INT32_MAX
from broker.protocol.epochs import NO_EPOCH

# So often a copy may take what came while it was synced, before it is another turn's.
_LAST_TURNS: Final = 64


class PartitionLog:
    """The log of a partition, and the copy that is to replace it; the log and futureLog of Kafka's
    ``Partition``, which inherits from this.

    Invariant: the records of the future log are those of the log, up to its own end. What the log loses in a
    truncation the future log loses, too. The records of both are copied and verified without the partition's
    lock, which is held only for the last ones and the replacement.
    """

    _lock: threading.RLock
    #: The local log, with its high watermark; replaced when it has moved to another log directory.
    log: Log
    #: The copy in another log directory while the log moves there.
    future: Log | None
    #: How often the log was truncated.
    _truncations: int

    def begin_move(self, future: Log) -> None:
        """Lets ``future`` follow the log. It may be left over from before a restart: what the log does not
        have is removed. Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._lock:
            future.truncate_to(common_end(self.log, future))
            self.future = future

    def end_move(self) -> None:
        """Forgets the future log."""
        with self._lock:
            self.future = None

    def note_truncation(self) -> None:
        """Call it with the lock held, after the log was truncated."""
        self._truncations += 1
        future = self.future
        if future is not None:
            future.truncate_to(self.log.offsets.end)

    def copy_to_future(self, most_bytes: int) -> int:
        """Copies up to about so many bytes; returns how many. 0: the copy is complete, for the moment.

        Raises KafkaError: CORRUPT_MESSAGE if the log is damaged, KAFKA_STORAGE_ERROR if a disk fails or is
        full, OFFSET_OUT_OF_RANGE if retention was faster.
        """
        with self._lock:
            future, log, truncations = self.future, self.log, self._truncations
            if future is None:
                return 0
            if future.offsets.end < log.offsets.start:
                future.truncate_fully_and_start_at(log.offsets.start)
            offset = future.offsets.end
        records = log.read_bytes(offset, most_bytes)
        if not records:
            return 0
        checked = future.appender.check_fetched(records)
        fit_empty(future, checked)
        future.appender.append_fetched(checked, INT32_MAX)
        with self._lock:
            if truncations != self._truncations:
                future.truncate_to(offset)  # what was read may be gone
            future.offsets.mark(log.offsets.high_watermark)
        return len(records)

    def finish_move(self, most_bytes: int, replace: Callable[[], Log]) -> bool:
        """Replaces the log by its copy. False if the copy lacks more than ``most_bytes``, or there is none.

        ``replace`` puts the files of the copy in place and returns it. Raises as :meth:`copy_to_future`.
        """
        future = self.future
        if future is None:
            return False
        future.flush()
        # What came during that. Only what comes from here on is left for the lock.
        for _ in range(_LAST_TURNS):
            # Whole batches fill at least half of it, while there are more.
            if self.copy_to_future(most_bytes) < most_bytes // 2:
                break
        with self._lock:
            if self.future is not future:
                return False
            for _ in range(2):
                self.copy_to_future(most_bytes)
            log, ours, its = self.log, future.offsets, self.log.offsets
            if ours.end != its.end:
                return False
            future.flush()
            for epoch, start in log.leader_epochs.entries:
                if epoch > future.leader_epochs.latest_epoch:
                    future.leader_epochs.assign(epoch, start)  # begun without a record
            ours.mark(its.high_watermark)
            if its.start > ours.start:
                future.increment_log_start_offset(its.start)
            future.update_config(log.config)
            self.log, self.future = replace(), None
            return True


def fit_empty(log: Log, fetched: FetchedBatches) -> None:
    """Lets an empty log begin where the first fetched batch does. DeleteRecords may have moved the start of the
    log that it is from into that batch.
    """
    offsets, headers = log.offsets, fetched.headers
    if (
        headers
        and offsets.start == offsets.end
        and headers[0].base_offset < offsets.end <= headers[0].last_offset
    ):
        log.truncate_fully_and_start_at(headers[0].base_offset)


def common_end(log: Log, copy: Log) -> int:
    """Up to where two logs of a partition have the same records: at each offset before it the same epoch."""
    end = min(log.offsets.end, copy.offsets.end)
    while end > max(log.offsets.start, copy.offsets.start):
        ours, its = log.leader_epochs.epoch_for_offset(end - 1), copy.leader_epochs.epoch_for_offset(end - 1)
        if ours == its and ours != NO_EPOCH:
            break
        end = max(_start_of_epoch(log, end - 1), _start_of_epoch(copy, end - 1))
    return end


def _start_of_epoch(log: Log, offset: int) -> int:
    """Where the epoch of ``offset`` begins; the log's start if it is not known."""
    return max(
        (start for _, start in log.leader_epochs.entries if start <= offset), default=log.offsets.start
    )
