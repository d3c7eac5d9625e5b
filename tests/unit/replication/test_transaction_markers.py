"""Markers that are appended to partitions of this broker: what is reported of them, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.protocol.errors import Errors
from broker.protocol.produce_messages import PartitionResponse
from broker.replication.transaction_markers import OffsetsMarker, OwnMarker, TransactionMarkers
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition
from tests.support.clocks import ManualClock

OFFSETS, OTHER = TopicPartition(GROUP_METADATA_TOPIC, 3), TopicPartition("t", 0)


class Replicas:
    """A replica manager that appends at once."""

    def partition(self, topic_partition: TopicPartition) -> object:
        return topic_partition

    def append_records(
        self, *, entries: Mapping[TopicPartition, memoryview], callback: Any, **_: Any
    ) -> None:
        callback({partition: PartitionResponse(Errors.NONE, 7) for partition in entries})


def test_a_marker_that_the_groups_could_not_take_up_is_answered_and_so_sent_again() -> None:
    told: list[OffsetsMarker] = []

    def take_up(marker: OffsetsMarker) -> None:
        told.append(marker)
        if len(told) == 1:
            raise ValueError("no such state")

    answers: list[Any] = []
    markers = TransactionMarkers(Replicas(), ManualClock(0, 0), 1_000, take_up)  # type: ignore[arg-type]
    for _ in range(2):
        markers.append([OwnMarker(1, 0, True, 2, [OFFSETS, OTHER])], answers.append)
    assert answers == [
        [{OFFSETS: Errors.UNKNOWN_SERVER_ERROR, OTHER: Errors.NONE}],
        [{OFFSETS: Errors.NONE, OTHER: Errors.NONE}],
    ]
    assert told == [OffsetsMarker(3, 1, 7, True)] * 2
