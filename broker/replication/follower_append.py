"""Applies a leader's answer to a partition: appends, truncates, or schedules a retry.

Kafka's ReplicaFetcherThread.processPartitionData, and the truncation of AbstractFetcherThread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from broker.log.log import Log, lower_recovery_points
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fetch_messages import ReceivedFetch, ReceivedPartition
from broker.replication.fetcher_parts import FetcherParts
from broker.replication.follower_fetch import Followed
from broker.replication.follower_session import Key
from broker.replication.leader_end_point import LeaderEndPoint
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.truncation import truncation_offset
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
# The leader or this broker has not heard of a change yet: retry soon, not after the full back-off.
_SOON = frozenset({Errors.UNKNOWN_LEADER_EPOCH, Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_ID})
_SOON_MS = 50
# The leader is changing; this is normal, and the next LeaderAndIsr names the new one.
_CHANGING = _SOON | {Errors.FENCED_LEADER_EPOCH}


class FollowerAppend:
    """Applies answers to the logs of one fetcher. A partition with an error is delayed while the others
    continue: ``put_off`` gets the partition and the delay in ms. Used by one thread at a time, the fetcher's
    or the loop's.
    """

    def __init__(
        self, parts: FetcherParts, leader: LeaderEndPoint, put_off: Callable[[Followed, int], None]
    ) -> None:
        self._on_appended = parts.on_appended
        self._quota = parts.quota or ReplicationQuota(parts.clock)
        self._broker_id = parts.broker_id
        self._backoff_ms = parts.settings.backoff_ms
        self._leader = leader
        self._put_off = put_off
        #: Why a partition's batches were refused. Each reason is logged once, although it is retried
        #: each second.
        self._refused: dict[TopicPartition, str] = {}

    def take(self, followed: Followed, received: ReceivedPartition) -> None:
        """Applies the leader's answer for one partition. Raises ChannelError or ProtocolError if the leader
        must be asked for more and does not answer.
        """
        topic_partition = followed.partition.topic_partition
        try:
            if received.error == Errors.OFFSET_OUT_OF_RANGE:
                self._reset_offset(followed)
            elif received.error == Errors.CORRUPT_MESSAGE:
                at = followed.partition.log.offsets.end
                raise KafkaError(
                    Errors.CORRUPT_MESSAGE,
                    f"the leader's log is damaged at offset {at}: it tells where in its own log",
                )
            elif received.error:
                self._delay(followed, Errors(received.error))
            elif received.diverging is not None:
                followed.partition.truncate_as_follower(
                    followed.leader_epoch, received.diverging, _truncation_offset
                )
            else:
                followed.partition.append_as_follower(
                    received.records,
                    followed.leader_epoch,
                    received.high_watermark,
                    received.log_start_offset,
                )
                self._on_appended(topic_partition)
                if self._refused:
                    self._refused.pop(topic_partition, None)
                if self._quota.is_set:
                    self._heed_quota(followed, received)
        except KafkaError as error:
            self._refuse(followed, error)

    def is_synced(self, followed: Followed) -> bool:
        """Whether the partition's log may be fetched from its end on, which acknowledges what is before. If a sync that
        ``flush.messages`` requires has failed, or an error came before it, it is made now. If that fails, the partition
        is delayed.
        """
        log = followed.partition.log
        if not log.durability.flush_due:
            return True
        try:
            log.sync_records()
        except KafkaError as error:
            self._refuse(followed, error)
            return False
        return True

    def _refuse(self, followed: Followed, error: KafkaError) -> None:
        topic_partition = followed.partition.topic_partition
        is_told = error.error_code in _CHANGING or self._refused.get(topic_partition) == error.message
        if not is_told:
            self._refused[topic_partition] = error.message
            _log.error(
                "replica_append_failed",
                partition=str(topic_partition),
                error=error.error_code.name,
                reason=error.message,
                action="the partition is fetched again after replica.fetch.backoff.ms, the others go on",
            )
        self._delay(followed, error.error_code)

    def _heed_quota(self, followed: Followed, received: ReceivedPartition) -> None:
        """Delays a throttled replica that is behind until the quota allows more."""
        log = followed.partition.log
        listed = log.config.follower_replication_throttled_replicas
        if not self._quota.covers(listed, followed.index, self._broker_id):
            return
        self._quota.record(len(received.records))
        wait_ms = self._quota.wait_ms()
        if wait_ms and log.log_end_offset < received.high_watermark:
            self._put_off(followed, wait_ms)

    def _delay(self, followed: Followed, error: Errors) -> None:
        delay_ms = _SOON_MS if error in _SOON else self._backoff_ms
        self._put_off(followed, min(delay_ms, self._backoff_ms))

    def _reset_offset(self, followed: Followed) -> None:
        """Handles a fetch offset that the leader refused: its log ends before the offset or begins after it.
        If the offset is in its range, the leader may not know the epoch of the last local records; then they
        are removed.
        """
        leader_end = self._leader.log_end_offset(followed)
        leader_start = self._leader.log_start_offset(followed)
        partition = followed.partition
        epochs = partition.log.leader_epochs.entries
        in_range = leader_start <= partition.log.offsets.end <= leader_end
        unknown = in_range and bool(epochs) and not self._leader.knows_epoch(followed, epochs[-1][0])
        changed = partition.reset_as_follower(
            followed.leader_epoch, leader_start, leader_end, epochs, last_unknown=unknown
        )
        if not changed:  # out of range a moment ago: retrying at once could loop forever
            self._delay(followed, Errors.OFFSET_OUT_OF_RANGE)


def is_trouble(response: ReceivedFetch) -> bool:
    """Whether applying the answer may need the leader, or the disk for longer than an append."""
    return bool(response.error) or any(
        received.error or received.diverging is not None for received in response.partitions
    )


def foresee_truncations(response: ReceivedFetch, followed: Mapping[Key, Followed]) -> None:
    """Lowers recovery points together if many logs must be truncated, as after a change of leader."""
    offsets: dict[Log, int] = {}
    for received in response.partitions:
        if received.error or received.diverging is None:
            continue
        item = followed.get((received.topic_id, received.partition))
        if item is not None and not item.partition.is_leader:
            log = item.partition.log
            offsets[log] = _truncation_offset(log, *received.diverging)
    if len(offsets) > 1:
        lower_recovery_points(offsets)


def _truncation_offset(log: Log, leader_epoch: int, leader_end_offset: int) -> int:
    own_epoch, own_epoch_end = log.end_offset_for_epoch(leader_epoch)
    return truncation_offset(leader_epoch, leader_end_offset, own_epoch, own_epoch_end, log.log_end_offset)
