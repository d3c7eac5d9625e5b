"""Finds duplicates that an idempotent producer caused itself: the same records sent again in a new
producer epoch.

librdkafka begins a new epoch when a request fails after another one was rejected. It then sends everything
that was not yet acknowledged again, to every partition, although some of it may be in the log. No broker can
distinguish these from new records, because sequence numbers start again with the epoch. The batches in the
replicas' files have the producer id and epoch, which distinguish such a duplicate from one that the broker
should have rejected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from broker.record.batch import BatchHeader, iter_batches
from chaos.anomalies import Anomaly, AnomalyKind
from chaos.facts import Place, gather
from chaos.history import History

Incarnation = tuple[int, int]
"""Producer id and epoch."""


class Incarnations(Protocol):
    """A lookup of the producer of each batch of a log."""

    def incarnation(self, topic: str, partition: int, offset: int) -> Incarnation | None:
        """The producer of the batch that has the offset."""


def resent_by_client(found: Iterable[Anomaly], history: History, logs: Incarnations) -> set[Anomaly]:
    """Returns the duplicates whose copies are all in batches of different producer epochs.

    Raises OSError when a log cannot be read.
    """
    duplicates = [anomaly for anomaly in found if anomaly.kind is AnomalyKind.DUPLICATE]
    if not duplicates:
        return set()
    places = gather(history).places
    return {each for each in duplicates if _are_different(logs, places.get(each.record_id, ()))}


def _are_different(logs: Incarnations, places: Sequence[Place]) -> bool:
    incarnations = [logs.incarnation(*place) for place in places]
    return len(places) > 1 and None not in incarnations and len(set(incarnations)) == len(incarnations)


class ReplicaLogs:
    """The batch headers by partition, read on first use from any replica, because replicas agree."""

    def __init__(self, replica_dirs: Mapping[int, Path]) -> None:
        self._replica_dirs = replica_dirs
        self._headers: dict[tuple[str, int], list[BatchHeader]] = {}

    def incarnation(self, topic: str, partition: int, offset: int) -> Incarnation | None:
        headers = self._of(topic, partition)
        at = bisect_right(headers, offset, key=lambda header: header.base_offset) - 1
        if at < 0 or headers[at].last_offset < offset:
            return None
        return headers[at].producer_id, headers[at].producer_epoch

    def _of(self, topic: str, partition: int) -> list[BatchHeader]:
        key = (topic, partition)
        if key not in self._headers:
            directories = [root / f"{topic}-{partition}" for root in self._replica_dirs.values()]
            directory = next((each for each in directories if each.is_dir()), directories[0])
            segments = sorted(directory.glob("*.log"))
            self._headers[key] = [
                header for segment in segments for header in iter_batches(memoryview(segment.read_bytes()))
            ]
        return self._headers[key]
