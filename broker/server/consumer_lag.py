"""The lag of the consumer groups that this broker coordinates, for /metrics and the status page.

The coordinator knows the committed offsets, the leaders know the ends of the logs (`end_offsets`). So each group is
reported by one broker, its coordinator, whoever leads the partitions. Nothing is computed for a request. While
somebody looks, a thread computes all lags every five seconds; it ends when nobody has looked for some minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

import structlog

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.describe import CommittedOffsets
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.metrics.registry import Metrics
from broker.server.end_offsets import EndOffsets
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
PERIOD_S: Final = 5.0
# Longer than the interval between two scrapes.
INTEREST_MS: Final = 150_000
# How long the first that looks waits. Whoever looks later gets the latest snapshot.
_FIRST_WAIT_S: Final = 1.0
_STOP_WAIT_S: Final = 5.0
_PREFIX: Final = "kafka_consumergroup_"
_BY_PARTITION: Final = ("consumergroup", "topic", "partition")
_BY_TOPIC: Final = ("consumergroup", "topic")

Committed = Callable[[int], tuple[list[CommittedOffsets], int]]
Values = dict[tuple[str, ...], float]


class PartitionLag(NamedTuple):
    """A group's position in a partition. ``lag`` is None if the end of the log is unknown."""

    committed: int
    lag: int | None


class GroupLag(NamedTuple):
    """A group and its lag, by partition."""

    group_id: str
    state: str
    members: int
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def total(self) -> int:
        """The lag over all partitions where it is known."""
        return sum(each.lag for each in self.partitions.values() if each.lag is not None)

    @property
    def unknown(self) -> int:
        """The number of partitions with an unknown lag."""
        return sum(each.lag is None for each in self.partitions.values())


class LagState(Enum):
    """Whether the lags are known. OFF: they are never computed. LATER: not yet, or the last attempt failed."""

    KNOWN = "known"
    LATER = "later"
    OFF = "off"


class LagSnapshot(NamedTuple):
    """All lags at one moment. ``left_out`` counts the groups and offsets above the limit. Without groups, ``state``
    says whether there are none.
    """

    groups: tuple[GroupLag, ...] = ()
    left_out: int = 0
    state: LagState = LagState.KNOWN


_OFF: Final = LagSnapshot(state=LagState.OFF)
_LATER: Final = LagSnapshot(state=LagState.LATER)


def lag_of(group: CommittedOffsets, ends: Mapping[TopicPartition, int]) -> GroupLag:
    """The lag of one group. It is 0 if the group is beyond the end, as after a loss of records."""
    return GroupLag(
        group.group_id,
        group.state,
        group.members,
        {
            partition: PartitionLag(
                offset, None if (end := ends.get(partition)) is None else max(end - offset, 0)
            )
            for partition, offset in group.offsets.items()
        },
    )


class ConsumerLag:
    """The lags of this broker's groups. Thread-safe. It owns the thread that computes them, which runs only
    while somebody looks.

    ``committed`` is ``GroupCoordinator.committed_offsets``; ``most`` its limit, 0 for no lags at all.
    """

    def __init__(self, committed: Committed, ends: EndOffsets, *, most: int, clock: Clock) -> None:
        self._committed = committed
        self._ends = ends
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()  # lock order 86
        self._thread: threading.Thread | None = None
        self._looked_ms = 0
        self._snapshot: LagSnapshot | None = None
        self._computed = threading.Event()
        self._stop = threading.Event()

    def current(self) -> LagSnapshot:
        """The latest lags, some seconds old. The first call after a long time waits for them, but not longer than a
        second; without them it returns none.
        """
        if self._most <= 0:
            return _OFF
        if self._stop.is_set():
            return _LATER
        with self._lock:
            self._looked_ms = self._clock.monotonic_ms()
            is_first = self._thread is None
            if is_first:
                self._computed.clear()
                thread = threading.Thread(target=self._run, name="consumer-lag", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the host has no thread left: the next look tries again
                    _log.warning("consumer_lag_failed", error=str(error))
                    return _LATER
                self._thread = thread
        if is_first:
            self._computed.wait(_FIRST_WAIT_S)
        return self._snapshot or _LATER

    def shutdown(self) -> None:
        """Ends the thread; idempotent."""
        self._stop.set()
        self._ends.stop()
        thread = self._thread
        if thread is not None:
            thread.join(_STOP_WAIT_S)

    def _run(self) -> None:
        while True:
            self._compute()
            self._computed.set()
            if self._stop.wait(PERIOD_S) or self._is_forgotten():
                self._ends.close()  # before another thread may look for ends
                if self._is_over():
                    return

    def _is_forgotten(self) -> bool:
        return self._clock.monotonic_ms() - self._looked_ms > INTEREST_MS

    def _is_over(self) -> bool:
        with self._lock:
            if not self._stop.is_set() and not self._is_forgotten():
                return False
            self._thread = self._snapshot = None
            return True

    def _compute(self) -> None:
        try:
            # The offsets come first: an end that is read later is not before them.
            groups, left_out = self._committed(self._most)
            ends = self._find({partition for group in groups for partition in group.offsets})
            self._snapshot = LagSnapshot(tuple(lag_of(group, ends) for group in groups), left_out)
        except Exception:  # the next round may work
            self._snapshot = None
            _log.exception("consumer_lag_failed")

    def _find(self, wanted: set[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The ends of the partitions. None at all if looking fails: the lags are unknown then, and counted as such."""
        try:
            return self._ends.find(wanted)
        except Exception:  # the next round may work
            _log.exception("consumer_lag_failed")
            return {}


def start_consumer_lag(
    config: BrokerConfig,
    coordinator: GroupCoordinator,
    ends: EndOffsets,
    steps: StartupSteps,
    *,
    clock: Clock,
    metrics: Metrics,
) -> ConsumerLag:
    """The lags of the coordinator's groups, with their metrics. ``steps`` stop them."""
    most = config.int("landline.consumer.lag.max.partitions")
    lag = ConsumerLag(coordinator.committed_offsets, ends, most=most, clock=clock)
    steps.undo_by("ConsumerLag", lag.shutdown)
    register_metrics(metrics, lag)
    return lag


def register_metrics(metrics: Metrics, lag: ConsumerLag) -> None:
    """Registers the metrics, under the names of kafka_exporter. They are read at each scrape."""

    def gauge(
        name: str,
        help_: str,
        read: Callable[[GroupLag], Iterator[tuple[tuple[str, ...], float]]],
        labels: tuple[str, ...],
    ) -> None:
        def values() -> Values:
            return {key: value for group in lag.current().groups for key, value in read(group)}

        metrics.gauge(name, help_, values, labels=labels)

    gauge(
        _PREFIX + "lag",
        "Records between a group's committed offset and the end of the partition; groups coordinated here",
        _lags,
        _BY_PARTITION,
    )
    gauge(_PREFIX + "lag_sum", "Lag of a group over all partitions of a topic", _topic_lags, _BY_TOPIC)
    gauge(_PREFIX + "current_offset", "Committed offset of a group", _offsets, _BY_PARTITION)
    gauge(
        _PREFIX + "members",
        "Members of a group",
        lambda group: iter([((group.group_id,), float(group.members))]),
        ("consumergroup",),
    )
    metrics.gauge(
        "landline_consumergroup_lag_unknown",
        "Committed offsets whose lag is unknown: their partition has no leader, or it does not answer",
        lambda: float(sum(group.unknown for group in lag.current().groups)),
    )
    metrics.gauge(
        "landline_consumergroup_lag_left_out",
        "Groups and committed offsets without lag, above landline.consumer.lag.max.partitions",
        lambda: float(lag.current().left_out),
    )


def _lags(group: GroupLag) -> Iterator[tuple[tuple[str, ...], float]]:
    for (topic, partition), found in group.partitions.items():
        if found.lag is not None:
            yield (group.group_id, topic, str(partition)), float(found.lag)


def _offsets(group: GroupLag) -> Iterator[tuple[tuple[str, ...], float]]:
    for (topic, partition), found in group.partitions.items():
        yield (group.group_id, topic, str(partition)), float(found.committed)


def _topic_lags(group: GroupLag) -> Iterator[tuple[tuple[str, ...], float]]:
    sums: dict[str, int] = {}
    for (topic, _), found in group.partitions.items():
        if found.lag is not None:
            sums[topic] = sums.get(topic, 0) + found.lag
    for topic, total in sums.items():
        yield (group.group_id, topic), float(total)
