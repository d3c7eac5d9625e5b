"""The log of a partition whose leader is another broker: it takes what the leader has, and loses what it lacks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import structlog

from broker.cluster.partition_log import PartitionLog, fit_empty
from broker.log.log import AppendInfo, Log
from broker.protocol.control_messages import PartitionRole
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
# (epoch, its first offset), the oldest first
LeaderEpochs = tuple[tuple[int, int], ...]


class FollowerLog(PartitionLog):
    """What a fetcher does with a partition's log; the follower's part of Kafka's ``Partition``, its subclass.

    Invariant: nothing is changed for a leader other than the one that the partition follows now. Each method
    is given the epoch by which its fetch began, and compares it with the lock held.
    """

    #: The topic and the partition number.
    topic_partition: TopicPartition
    #: The role from the controller's last request.
    state: PartitionRole
    #: Whether this broker leads: ``state`` says so, and it was not stopped since.
    is_leader: bool

    @abstractmethod
    def advance_high_watermark(self) -> bool:
        """Recomputes the high watermark of a leader; True if it advanced."""

    def append_as_follower(
        self, records: memoryview, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> AppendInfo | None:
        """Appends what a leader sent, unless this partition's role has changed since the fetch began.

        If ``flush.messages`` requires a sync, it returns after it, because the next fetch acknowledges the
        records. Checksums are verified and the sync runs without the lock, so that other callers do not wait
        for the disk.
        """
        leads = self.is_leader  # also without the lock: see append_as_leader
        if leads or leader_epoch != self.state.leader_epoch:
            return None
        checked = self.log.appender.check_fetched(records) if records else None
        with self._lock:
            if self.is_leader or leader_epoch != self.state.leader_epoch:
                return None
            info = None
            if checked is not None:
                fit_empty(self.log, checked)
                info = self.log.appender.append_fetched(checked, leader_epoch)
            offsets = self.log.offsets
            mark = min(leader_high_watermark, offsets.end)
            offsets.mark(max(offsets.high_watermark, mark))
            if leader_log_start > offsets.start:
                self.log.increment_log_start_offset(leader_log_start)
        if self.log.durability.flush_due:
            self.log.sync_records()
            self.advance_high_watermark()  # it may lead by now, and have waited for this sync
        return info

    def truncate_as_follower(
        self, leader_epoch: int, diverging: tuple[int, int], offset_of: Callable[[Log, int, int], int]
    ) -> None:
        """Truncates the log where it diverges from the leader's, unless the role changed since the fetch by
        ``leader_epoch`` began.

        ``diverging`` is an epoch and its end offset at the leader; ``offset_of`` finds the offset to truncate
        to. It is called with the lock held, so that nothing is appended before the truncation.
        """
        with self._lock:
            if self.is_leader or leader_epoch != self.state.leader_epoch:
                return
            log = self.log
            before, offset = log.offsets.end, offset_of(log, *diverging)
            _log.info(
                "follower_truncates",
                partition=str(self.topic_partition),
                before=before,
                after=offset,
                high_watermark=log.offsets.high_watermark,
                leader_epoch=diverging[0],
            )
            log.truncate_to(offset)
            self.note_truncation()

    def reset_as_follower(
        self,
        leader_epoch: int,
        leader_start: int,
        leader_end: int,
        epochs: LeaderEpochs,
        *,
        last_unknown: bool,
    ) -> bool:
        """Moves the log's end into the leader's range: it was past ``leader_end`` or before ``leader_start``.

        ``last_unknown``: the leader does not know the last of ``epochs``, those of this log when the leader
        was asked; then the records of that epoch are removed. Returns False if nothing changed; asking again
        at once would give the same answer.
        """
        with self._lock:
            if self.is_leader or leader_epoch != self.state.leader_epoch:
                return True
            log = self.log
            before = log.offsets.end
            if leader_end < before:
                log.truncate_to(leader_end)
            elif leader_start > before:
                log.truncate_fully_and_start_at(leader_start)
            elif last_unknown and log.leader_epochs.entries == epochs:
                log.truncate_to(epochs[-1][1])
            self.note_truncation()
            _log.warning(
                "follower_offset_reset",
                partition=str(self.topic_partition),
                before=before,
                after=log.offsets.end,
                leader_log_start=leader_start,
                leader_log_end=leader_end,
                epoch_unknown_to_leader=epochs[-1][0] if last_unknown else None,
            )
            return (log.offsets.end, log.leader_epochs.entries) != (before, epochs)
