"""Has the markers of ended transactions written by the partitions' leaders, then the transaction's end stored.

Kafka's TransactionMarkerChannelManager. Nothing is given up while this broker coordinates the transaction: a later
coordinator starts over from the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import structlog

from broker.coordinator.transaction.marker_sender import MarkerSender
from broker.coordinator.transaction.markers import MarkerErrors, Outgoing, TxnMarker, judge
from broker.coordinator.transaction.memory import MAX_NAME
from broker.coordinator.transaction.partition import PendingCompletion
from broker.coordinator.transaction.partitions import NO_PARTITIONS, Partitions, count, each_of, partitions_of
from broker.coordinator.transaction.retry_list import RetryList
from broker.protocol.control_messages import PartitionInfo
from broker.protocol.errors import Errors
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.utils.clock import Clock
from broker.utils.line_budget import LineBudget
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
# A transaction of more partitions is sorted by leaders on the scheduler's thread, not on the one that ended it.
_PARTITIONS_AT_ONCE: Final = 500


class Metadata(Protocol):
    """The part of the MetadataCache that is used here."""

    def alive_broker_ids(self) -> list[int]: ...
    def partition_info(self, topic_partition: TopicPartition) -> PartitionInfo | None: ...
    def broker_address(self, broker_id: int) -> BrokerAddress | None: ...


class AppendMarkers(Protocol):
    """Writes markers to partitions that this broker leads, without a connection. ``respond`` gets the errors of each
    marker in order, once, on any thread.
    """

    def __call__(
        self, markers: Sequence[TxnMarker], respond: Callable[[Sequence[MarkerErrors]], None]
    ) -> None: ...


class TransactionMarkerChannelManager:
    """The markers that wait for their leaders; Kafka's TransactionMarkerChannelManager. Owns a sender for each
    broker. Without ``append_markers`` this broker's own partitions get theirs through a connection, too.
    """

    def __init__(
        self,
        broker_id: int,
        metadata: Metadata,
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        *,
        scheduler: KafkaScheduler,
        clock: Clock,
        append_markers: AppendMarkers | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._make_channel = make_channel
        self._scheduler = scheduler
        self._append_markers = append_markers
        self._lines = LineBudget(clock.monotonic_ms, per_second=1, at_once=10)
        self._lock = threading.Lock()  # lock order 57
        self._senders: dict[int, MarkerSender] = {}
        self._is_stopped = False
        self._failed: RetryList[Outgoing] = RetryList(self._schedule, self._place)
        self._without_leader: RetryList[Outgoing] = RetryList(self._schedule, self._place)
        self._incomplete: RetryList[PendingCompletion] = RetryList(self._schedule, self._complete_all)

    @property
    def unknown_destinations(self) -> int:
        """How many markers wait for a leader of their partitions."""
        return self._without_leader.size

    @property
    def log_append_retries(self) -> int:
        """How many transactions have all markers, and wait until their end can be stored."""
        return self._incomplete.size

    def send(self, completion: PendingCompletion) -> None:
        """Has the transaction's markers written, and then its end. Does not raise."""
        if not completion.partitions:
            self._complete(completion)
        elif count(completion.partitions) > _PARTITIONS_AT_ONCE:
            self._schedule(partial(self._place, [Outgoing(completion, completion.partitions)]), 0)
        else:
            self._place([Outgoing(completion, completion.partitions)])

    def shutdown(self) -> None:
        with self._lock:
            self._is_stopped = True
            senders, self._senders = list(self._senders.values()), {}
        for sender in senders:
            sender.shutdown()

    # -- to the leaders

    def _schedule(self, action: Callable[[], None], delay_ms: int) -> None:
        with suppress(RuntimeError):  # the scheduler is not running: this broker stops
            if not self._is_stopped:
                self._scheduler.schedule("txn-markers", action, delay_ms)

    def _place(self, every: Iterable[Outgoing]) -> None:
        """Hands the partitions to their leaders' senders."""
        mine: list[Outgoing] = []
        without_leader: list[Outgoing] = []
        for outgoing in every:
            completion = outgoing.completion
            try:
                by_leader, gone = self._sorted(completion.led.unmarked(completion, outgoing.partitions))
            except Exception:
                self._tell_failure(completion)
                self._failed.add([outgoing])
                continue
            for leader, partitions in by_leader.items():
                part = Outgoing(completion, partitions)
                if leader is None:
                    without_leader.append(part)
                elif leader == self._broker_id and self._append_markers is not None:
                    mine.append(part)
                else:
                    self._send_to(leader, part)
            if gone:
                self._drop(completion, gone)
        self._without_leader.add(without_leader)
        if mine and self._append_markers is not None:
            self._append_mine(mine, self._append_markers)

    def _append_mine(self, mine: list[Outgoing], append_markers: AppendMarkers) -> None:
        markers = [outgoing.marker() for outgoing in mine]
        try:
            append_markers(markers, partial(self._judged, mine))
        except Exception:
            self._tell_failure(mine[0].completion)
            self._failed.add(mine)

    def _sorted(self, partitions: Partitions) -> tuple[dict[int | None, Partitions], Partitions]:
        """The partitions by their live leader (None: nobody), and those that no longer exist."""
        knows_cluster = bool(self._metadata.alive_broker_ids())
        by_leader: dict[int | None, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        for topic_partition in each_of(partitions):
            info = self._metadata.partition_info(topic_partition)
            if info is None and knows_cluster:
                gone.append(topic_partition)
                continue
            leader = None
            if info is not None and self._metadata.broker_address(info.leader) is not None:
                leader = info.leader
            by_leader.setdefault(leader, []).append(topic_partition)
        return {leader: partitions_of(found) for leader, found in by_leader.items()}, partitions_of(gone)

    def _send_to(self, broker_id: int, outgoing: Outgoing) -> None:
        with self._lock:
            if self._is_stopped:
                return
            sender = self._senders.get(broker_id)
            if sender is None:
                sender = self._senders[broker_id] = MarkerSender(
                    broker_id,
                    partial(self._metadata.broker_address, broker_id),
                    self._make_channel,
                    f"broker-{self._broker_id}-txn-marker-sender",
                    answered=self._answered,
                    failed=self._failed.add,
                    lines=self._lines,
                )
        sender.send(outgoing)

    def _drop(self, completion: PendingCompletion, gone: Partitions) -> None:
        left_out = self._lines.left_out()
        if left_out is not None:
            _log.info(
                "txn_markers_dropped",
                transactional_id=completion.transactional_id[:MAX_NAME],
                topics=sorted(gone)[:10],
                partitions=count(gone),
                reason="the partitions no longer exist",
                left_out=left_out,
            )
        self._marked(completion, gone)

    # -- answers

    def _answered(self, batch: Sequence[Outgoing], errors: Mapping[int, MarkerErrors]) -> None:
        self._judged(batch, [errors.get(outgoing.completion.target.producer_id, {}) for outgoing in batch])

    def _judged(self, batch: Sequence[Outgoing], errors: Sequence[MarkerErrors]) -> None:
        again: list[Outgoing] = []
        for outgoing, answer in zip(batch, errors, strict=True):
            try:
                retried = self._judge(outgoing, answer)
            except Exception:  # the others' answers count
                self._tell_failure(outgoing.completion)
                retried = outgoing.partitions
            if retried:
                again.append(outgoing._replace(partitions=retried))
        self._failed.add(again)

    def _judge(self, outgoing: Outgoing, answer: MarkerErrors) -> Partitions:
        """Does what follows from the answer. Returns the partitions that are to be asked again."""
        completion, partitions = outgoing
        judged = judge(each_of(partitions), answer)
        if judged.strange:
            self._tell_strange(completion, judged.strange)
        if judged.done:
            self._marked(completion, judged.done)
        if judged.cancelled:
            # The transaction stays as it is until another coordinator loads it, as in Kafka.
            self._tell_cancelled(completion, judged.cancelled)
            return NO_PARTITIONS
        return judged.retried

    def _tell_failure(self, completion: PendingCompletion) -> None:
        """Logs the exception that is being handled."""
        left_out = self._lines.left_out()
        if left_out is not None:
            _log.exception(
                "txn_markers_failed",
                transactional_id=completion.transactional_id[:MAX_NAME],
                left_out=left_out,
                action="tried again",
            )

    def _tell_cancelled(self, completion: PendingCompletion, errors: MarkerErrors) -> None:
        left_out = self._lines.left_out()
        if left_out is not None:
            partition, error = next(iter(errors.items()))
            _log.warning(
                "txn_markers_cancelled",
                transactional_id=completion.transactional_id[:MAX_NAME],
                partition=str(partition),
                error=error.name,
                left_out=left_out,
            )

    def _tell_strange(self, completion: PendingCompletion, errors: Iterable[Errors]) -> None:
        left_out = self._lines.left_out()
        if left_out is not None:
            _log.error(
                "txn_markers_refused",
                transactional_id=completion.transactional_id[:MAX_NAME],
                errors=sorted(error.name for error in errors),
                left_out=left_out,
                action="sent again; the leader's log has the reason",
            )

    def _marked(self, completion: PendingCompletion, partitions: Partitions) -> None:
        if completion.led.marked(completion, partitions):
            self._complete(completion)

    def _complete_all(self, completions: Iterable[PendingCompletion]) -> None:
        for completion in completions:
            self._complete(completion)

    def _complete(self, completion: PendingCompletion) -> None:
        def stored(error: Errors) -> None:
            if error is not Errors.NONE and completion.led.is_led:
                self._incomplete.add([completion])

        try:
            completion.led.complete(completion, stored)
        except Exception:
            self._tell_failure(completion)
            self._incomplete.add([completion])
