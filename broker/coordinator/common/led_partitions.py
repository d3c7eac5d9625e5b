"""Which partitions of its internal topic a coordinator leads, and which of them it is loading. Pure.

Leader epochs identify elections, which may be reported late or out of order.
"""

from __future__ import annotations

from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors


class LedPartitions:
    """The partitions of one coordinator. The registry that owns it has a lock, which it holds for each call;
    :meth:`refusal` and :meth:`is_current` may be asked without it.

    Invariant: ``loading`` and ``owned`` are disjoint.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._loading: set[int] = set()
        self._owned: set[int] = set()

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def refusal(self, partition: int) -> Errors | None:
        """The error for what is stored in this partition; None if it is served here."""
        if partition in self._owned:
            return None
        if partition in self._loading:
            return Errors.COORDINATOR_LOAD_IN_PROGRESS
        return Errors.NOT_COORDINATOR

    def continues(self, partition: int, leader_epoch: int) -> bool:
        """Whether this election only continues the ownership: with the next epoch in sequence, no other
        broker led in between.
        """
        if partition not in self._owned or leader_epoch != self._epochs.get(partition, NO_EPOCH) + 1:
            return False
        self._epochs[partition] = leader_epoch
        return True

    def begin_loading(self, partition: int, leader_epoch: int) -> bool:
        """Handles an election. False if it is stale."""
        if leader_epoch <= self._epochs.get(partition, NO_EPOCH):
            return False
        self._epochs[partition] = leader_epoch
        self._owned.discard(partition)
        self._loading.add(partition)
        return True

    def is_current(self, partition: int, leader_epoch: int) -> bool:
        """Whether the load that started with this epoch is still needed."""
        return partition in self._loading and self._epochs.get(partition) == leader_epoch

    def publish(self, partition: int, leader_epoch: int) -> bool:
        """Ends the loading. False if it came too late."""
        if not self.is_current(partition, leader_epoch):
            return False
        self._loading.discard(partition)
        self._owned.add(partition)
        return True

    def resign(self, partition: int, leader_epoch: int | None) -> bool:
        """Gives up a partition that another broker leads, or that is gone (no epoch). False if this is stale."""
        if leader_epoch is None:
            self._epochs.pop(partition, None)  # a new topic of the same name starts at epoch 0
        elif leader_epoch < self._epochs.get(partition, NO_EPOCH):
            return False
        else:
            self._epochs[partition] = leader_epoch
        self._owned.discard(partition)
        self._loading.discard(partition)
        return True
