"""What classic groups and consumer groups (KIP-848) have in common. Pure.

In a consumer group the classic part is Empty, or Dead when the group is over.
"""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.consumer.group import ConsumerGroupState
from broker.coordinator.group.group import Group
from broker.coordinator.group.states import GroupState

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


def kind_of(group: Group) -> str:
    """Its type, as ListGroups shows it."""
    return CLASSIC if group.consumer is None else CONSUMER


def state_of(group: Group) -> GroupState | ConsumerGroupState:
    if group.consumer is None or group.state is GroupState.DEAD:
        return group.state
    return group.consumer.state


def epoch_of(group: Group) -> int:
    """The generation, or the epoch."""
    return group.generation_id if group.consumer is None else group.consumer.epoch


def member_count(group: Group) -> int:
    return len(group.members if group.consumer is None else group.consumer.members)


def is_vacant(group: Group) -> bool:
    """Whether the group lives and has no members."""
    if group.state is not GroupState.EMPTY:
        return False
    return group.consumer is None or not (group.consumer.members or group.consumer.unstored.is_storing)
