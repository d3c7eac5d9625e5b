"""Transaction markers on their way to the leaders: what is sent, and what each answer means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from broker.coordinator.transaction.partition import PendingCompletion
from broker.coordinator.transaction.partitions import Partitions, partitions_of
from broker.protocol.control_messages import error_of
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.responses import WriteTxnMarkersResponse
from broker.utils.topic_partition import TopicPartition

WRITE_TXN_MARKERS_VERSION: Final = 1

MarkerErrors = Mapping[TopicPartition, Errors]


class TxnMarker(NamedTuple):
    """A marker for several partitions of one leader; Kafka's TxnMarkerEntry."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: Partitions


class Outgoing(NamedTuple):
    """The partitions of a transaction that still need their marker and have the same leader."""

    completion: PendingCompletion
    partitions: Partitions

    def marker(self) -> TxnMarker:
        completion = self.completion
        target = completion.target
        return TxnMarker(
            target.producer_id,
            target.producer_epoch,
            completion.coordinator_epoch,
            completion.committed,
            self.partitions,
        )


class MarkerOutcome(Enum):
    """What follows for a partition from its error in the answer to WriteTxnMarkers."""

    DONE = "it has its marker, or never will have records of the transaction"
    RETRY = "the marker is sent again, to the leader that the partition has then"
    CANCEL = "a newer coordinator or producer has taken over"


OUTCOMES: Final[Mapping[Errors, MarkerOutcome]] = {
    Errors.NONE: MarkerOutcome.DONE,
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerOutcome.DONE,
    Errors.UNSUPPORTED_VERSION: MarkerOutcome.DONE,
    Errors.UNKNOWN_TOPIC_OR_PARTITION: MarkerOutcome.RETRY,
    Errors.NOT_LEADER_OR_FOLLOWER: MarkerOutcome.RETRY,
    Errors.NOT_ENOUGH_REPLICAS: MarkerOutcome.RETRY,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: MarkerOutcome.RETRY,
    Errors.REQUEST_TIMED_OUT: MarkerOutcome.RETRY,
    Errors.KAFKA_STORAGE_ERROR: MarkerOutcome.RETRY,
    Errors.INVALID_PRODUCER_EPOCH: MarkerOutcome.CANCEL,
    Errors.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.CANCEL,
}
"""As in Kafka. Any other error is a defect of the leader, for which Kafka gives up; here it is retried."""


class Judged(NamedTuple):
    """The partitions of one marker, by what follows for them. ``strange`` are errors that no leader should send."""

    done: Partitions
    retried: Partitions
    cancelled: Mapping[TopicPartition, Errors]
    strange: frozenset[Errors]


def judge(partitions: Iterable[TopicPartition], errors: MarkerErrors) -> Judged:
    """``errors`` is the leader's answer. A partition that it does not name is retried."""
    found: dict[MarkerOutcome, list[TopicPartition]] = {outcome: [] for outcome in MarkerOutcome}
    strange = set()
    for partition in partitions:
        error = errors.get(partition, Errors.UNKNOWN_SERVER_ERROR)
        if error not in OUTCOMES:
            strange.add(error)
        found[OUTCOMES.get(error, MarkerOutcome.RETRY)].append(partition)
    return Judged(
        partitions_of(found[MarkerOutcome.DONE]),
        partitions_of(found[MarkerOutcome.RETRY]),
        {partition: errors[partition] for partition in found[MarkerOutcome.CANCEL]},
        frozenset(strange),
    )


def request_fields(markers: Sequence[TxnMarker]) -> Fields:
    """A WriteTxnMarkers request."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "producer_epoch": marker.producer_epoch,
                "transaction_result": marker.committed,
                "topics": [
                    {"name": topic, "partition_indexes": sorted(numbers)}
                    for topic, numbers in marker.partitions.items()
                ],
                "coordinator_epoch": marker.coordinator_epoch,
            }
            for marker in markers
        ]
    }


def errors_by_producer(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, Errors]]:
    """The answer's errors; UNKNOWN_SERVER_ERROR for an unknown code. A request has one marker for each
    producer id.
    """
    found: dict[int, dict[TopicPartition, Errors]] = {}
    for marker in response.markers:
        errors = found.setdefault(int(marker.producer_id), {})
        for topic in marker.topics:
            for row in topic.partitions:
                errors[TopicPartition(topic.name, row.partition_index)] = error_of(row.error_code)
    return found
