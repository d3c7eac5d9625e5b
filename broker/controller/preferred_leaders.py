"""Elects preferred leaders: when they are back in the ISR, and when too many partitions are led by
other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable

from broker.controller.context import ControllerContext
from broker.controller.partition_machine import PartitionMachine
from broker.controller.rules import leader_selector
from broker.controller.rules.leader_selector import Election
from broker.controller.rules.states import PartitionState, Replica
from broker.controller.settings import ControllerSettings
from broker.utils.topic_partition import TopicPartition


class PreferredLeaders:
    """The elections of preferred leaders without a request. It runs on the controller's thread.
    ``later(delay_ms, key, action)`` enqueues a delayed event. ``settings`` is read each time, because
    settings may change.
    """

    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionMachine,
        settings: Callable[[], ControllerSettings],
        later: Callable[[int, Hashable, Callable[[], None]], None],
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._settings = settings
        self._later = later
        self._rejoined: set[TopicPartition] = set()

    def begin(self) -> None:
        if self._settings().auto_leader_rebalance_enable:
            self._later(self._settings().first_imbalance_check_ms, "rebalance", self.rebalance)

    def rebalance(self) -> None:
        """The periodic check of ``leader.imbalance.*``. It skips partitions that are being reassigned."""
        settings = self._settings()
        self._later(settings.imbalance_check_interval_ms, "rebalance", self.rebalance)
        candidates = [
            (partition, replicas[0], state.leader)
            for partition, state in self._context.leaders.items()
            if (replicas := self._context.replicas(partition))
            and not self._context.is_being_deleted(partition.topic)
            and not self._context.is_being_reassigned(partition)
        ]
        percentage = settings.imbalance_per_broker_percentage
        positions = leader_selector.imbalanced([row[1:] for row in candidates], percentage)
        self.elect(candidates[position][0] for position in positions)

    def on_isr_changed(
        self, partition: TopicPartition, before: Collection[int], after: Collection[int]
    ) -> None:
        """Schedules an election when a preferred leader is back in the ISR, instead of waiting for the
        next rebalance.
        """
        replicas = self._context.replicas(partition)
        if not (self._settings().auto_leader_rebalance_enable and replicas):
            return
        if replicas[0] in after and replicas[0] not in before:
            if not self._rejoined:
                self._later(self._settings().rejoin_delay_ms, "rejoined", self._elect_rejoined)
            self._rejoined.add(partition)

    def _elect_rejoined(self) -> None:
        rejoined, self._rejoined = self._rejoined, set()
        self.elect(sorted(rejoined))

    def elect(self, partitions: Iterable[TopicPartition]) -> None:
        """Elects the preferred leader of each partition where it is alive, in sync and not leading yet."""
        electable = [
            partition
            for partition in partitions
            if (state := self._context.leaders.get(partition)) is not None
            and self._context.state(partition) in {PartitionState.ONLINE, PartitionState.OFFLINE}
            and not self._context.is_being_deleted(partition.topic)
            and not self._context.is_being_reassigned(partition)
            and state.leader != self._context.replicas(partition)[0]
            and self._context.replicas(partition)[0] in state.isr
            and self._context.is_online(Replica(partition, self._context.replicas(partition)[0]))
        ]
        if electable:
            self._partitions.to_online(electable, Election.PREFERRED)
