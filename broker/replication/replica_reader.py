"""What a fetch reads of this broker's replicas, as their leader or as a follower of theirs. It waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from broker.cluster.partition import Partition
from broker.protocol.alter_partition_messages import IsrChange
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fetch_messages import FetchedPartition
from broker.replication.delayed_fetch import Fetched, FetchEntry, FetchParams
from broker.replication.replica_selector import ReplicaSelector
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.traffic import Traffic
from broker.utils.topic_partition import TopicPartition

_NO_ERROR: Final = Errors.NONE  # looked up here once, and not for each partition


class ReplicaReader:
    """Reads ``partitions``, which others change. Any thread may call it, with no lock held.

    ``absence`` makes the error for a partition that is not there. ``quota`` throttles followers outside the
    ISR. ``selector`` chooses replicas for consumers; without one they read from the leader. A follower's fetch
    may need a change of the ISR, which ``on_isr_expands`` gets. ``on_follower_read`` is called after it, with
    whether the high watermark advanced.
    """

    def __init__(
        self,
        broker_id: int,
        partitions: Mapping[TopicPartition, Partition],
        absence: Callable[[TopicPartition], KafkaError],
        quota: ReplicationQuota,
        selector: ReplicaSelector | None,
        *,
        traffic: Traffic,
        on_isr_expands: Callable[[IsrChange], None],
        on_follower_read: Callable[[TopicPartition, bool], None],
    ) -> None:
        self.selector = selector
        self._broker_id = broker_id
        self._partitions = partitions
        self._absence = absence
        self._quota = quota
        self._traffic = traffic
        self._on_isr_expands = on_isr_expands
        self._on_follower_read = on_follower_read

    def read(self, params: FetchParams, entries: Iterable[FetchEntry]) -> tuple[Fetched, int, bool]:
        """Reads each entry. Also returns the bytes found, and whether the answer cannot wait.

        An error, a diverging log or a preferred replica must be answered at once.
        """
        fetched: Fetched = []
        size = 0
        urgent = False
        partition_of, most = self._partitions.get, params.max_bytes
        read = self._read_for_follower if params.from_follower else self._read_for_consumer
        for entry in entries:
            max_bytes = entry.max_bytes
            if max_bytes > most - size:
                max_bytes = max(most - size, 0) if size else most
            try:
                partition = partition_of(entry.topic_partition)
                if partition is None:
                    raise self._absence(entry.topic_partition)
                known_id, topic_id = partition.topic_id, entry.topic_id.int
                if topic_id and known_id is not None and known_id.int != topic_id:
                    raise KafkaError(Errors.INCONSISTENT_TOPIC_ID)
                result = read(partition, params, entry, max_bytes, size == 0)
            except KafkaError as error:
                result = self._read_failed(entry, error)
            if result.records is not None:
                size += result.records.size
            if result.error is not _NO_ERROR or result.diverging is not None or result.preferred >= 0:
                urgent = True
            fetched.append((entry, result))
        return fetched, size, urgent

    def _read_for_consumer(
        self, partition: Partition, params: FetchParams, entry: FetchEntry, max_bytes: int, min_one: bool
    ) -> FetchedPartition:
        if params.client is not None and self.selector is not None:
            preferred = self.selector.choose(partition, params.client, entry.fetch_offset)
            if preferred is not None:
                return _refer(partition, entry, preferred)
        return _read_for_consumer(partition, params, entry, max_bytes, min_one)

    def _read_for_follower(
        self, partition: Partition, params: FetchParams, entry: FetchEntry, max_bytes: int, min_one: bool
    ) -> FetchedPartition:
        topic_partition = entry.topic_partition
        throttled = self._quota.is_set and self._is_throttled(params.replica_id, partition)
        if throttled and self._quota.wait_ms():
            max_bytes, min_one = 0, False
        result = partition.fetch_as_follower(
            params.replica_id,
            params.replica_epoch,
            entry.fetch_offset,
            entry.log_start_offset,
            max_bytes,
            current_leader_epoch=entry.current_leader_epoch,
            last_fetched_epoch=entry.last_fetched_epoch,
            min_one=min_one,
        )
        if result.isr_change is not None:
            self._on_isr_expands(result.isr_change)
        self._on_follower_read(topic_partition, result.hw_advanced)
        mark, start = result.high_watermark, result.log_start_offset
        stable = partition.log.last_stable_offset()
        records = None if result.read is None else result.read.region
        if throttled and records is not None:
            self._quota.record(records.size)
        index = topic_partition.partition
        return FetchedPartition(
            index, _NO_ERROR, mark, stable, start, records=records, diverging=result.diverging
        )

    def _read_failed(self, entry: FetchEntry, error: KafkaError) -> FetchedPartition:
        self._traffic.failed_fetches += 1
        index = entry.topic_partition.partition
        partition = self._partitions.get(entry.topic_partition)
        if partition is not None and error.error_code is Errors.OFFSET_OUT_OF_RANGE:
            log = partition.log
            return FetchedPartition(index, error.error_code, log.high_watermark, -1, log.log_start_offset)
        return FetchedPartition(index, error.error_code)

    # -- throttled followers

    def held_back(self, params: FetchParams) -> Callable[[Partition], bool] | None:
        """Says of a partition whether the reader gets nothing of it for now. None if it is never throttled."""
        return partial(self._is_held_back, params.replica_id) if self._may_hold_back(params) else None

    def _may_hold_back(self, params: FetchParams) -> bool:
        return params.from_follower and self._quota.is_set

    def _is_throttled(self, follower: int, partition: Partition) -> bool:
        """Followers in the ISR are not throttled, because that would take them out of it."""
        listed = partition.log.config.leader_replication_throttled_replicas
        return follower not in partition.isr.committed and self._quota.covers(
            listed, partition.topic_partition.partition, self._broker_id
        )

    def _is_held_back(self, follower: int, partition: Partition) -> bool:
        return self._is_throttled(follower, partition) and self._quota.wait_ms() > 0


def _refer(partition: Partition, entry: FetchEntry, preferred: int) -> FetchedPartition:
    """Sends a consumer to the replica that it should read."""
    partition.require_leader(entry.current_leader_epoch)
    log = partition.log
    stable = log.last_stable_offset()
    mark, start = log.offsets.high_watermark, log.offsets.start
    index = entry.topic_partition.partition
    return FetchedPartition(index, Errors.NONE, mark, stable, start, preferred=preferred)


def _read_for_consumer(
    partition: Partition, params: FetchParams, entry: FetchEntry, max_bytes: int, min_one: bool
) -> FetchedPartition:
    partition.require_leader(entry.current_leader_epoch, or_follower=params.or_follower)
    log = partition.log  # once: it is another one after a move between disks
    offset, offsets = entry.fetch_offset, log.offsets
    diverging = None
    if entry.last_fetched_epoch >= 0:
        diverging = partition.diverging_epoch(offset, entry.last_fetched_epoch)
    reads_committed = diverging is None and params.committed_only
    region = aborted = None
    if reads_committed:
        read, aborted, stable = log.reader.read_committed(offset, max_bytes, min_one_batch=min_one)
        region = read.region
    else:
        stable = log.last_stable_offset()
    mark = offsets.high_watermark  # read after it, so that it is not before it
    # At the high watermark there is nothing to read, as for most of the partitions of a session.
    if diverging is None and not reads_committed and (offset != mark or offset < offsets.start):
        region = log.reader.read(offset, max_bytes, end_offset=mark, min_one_batch=min_one).region
    index = entry.topic_partition.partition
    return FetchedPartition(
        index, _NO_ERROR, mark, stable, offsets.start, records=region, diverging=diverging, aborted=aborted
    )
