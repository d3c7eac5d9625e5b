"""The assignors of consumer groups (KIP-848), by Kafka's names: ``uniform`` and ``range``. Pure functions.

Both are deterministic: the same members, subscriptions and partitions give the same assignment.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

# Partitions by the id of their topic. A topic without partitions has no entry. Never changed once made.
Assignment = Mapping[uuid.UUID, frozenset[int]]
NOTHING: Final[Assignment] = {}
# How often the balance of members with different subscriptions is improved. Each time visits all partitions.
_MOST_ROUNDS: Final = 64

_Partition = tuple[uuid.UUID, int]


class AssigneeSpec(NamedTuple):
    """What an assignor knows about a member: the topics of its subscription that exist, and its assignment so far."""

    instance_id: str | None
    topics: frozenset[uuid.UUID]
    assigned: Assignment = NOTHING


Assignees = Mapping[str, AssigneeSpec]
Assignor = Callable[[Assignees, Mapping[uuid.UUID, int]], dict[str, Assignment]]


def assign_uniform(members: Assignees, partitions: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Spreads all partitions evenly and keeps as many as possible where they are; Kafka's UniformAssignor.

    ``partitions`` has the number of partitions of every topic in a subscription. If all members have the same
    subscription, their numbers of partitions differ by at most one, and no partition moves needlessly.
    Otherwise moving any single partition would not improve the balance, for ordinary sizes of groups.
    """
    if not members:
        return {}
    kept = _kept(members, partitions)
    if len({spec.topics for spec in members.values()}) == 1:
        _fill_quotas(kept, next(iter(members.values())).topics, partitions)
    else:
        subscribers = _subscribers(sorted(members), members)
        _fill_least_loaded(kept, subscribers, partitions)
        _balance(kept, subscribers)
    return {member_id: _grouped(held) for member_id, held in kept.items()}


def assign_range(members: Assignees, partitions: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Divides each topic into contiguous ranges, one for each subscriber; Kafka's RangeAssignor.

    Static members come first, by instance id, then the others, by member id. The first members get one
    partition more where the number does not divide. So topics with as many partitions and the same
    subscribers are co-partitioned.
    """
    assigned: dict[str, dict[uuid.UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic, subscribers in _subscribers(sorted(members, key=_range_order(members)), members).items():
        least, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + least + (number < extra)
            if end > start:
                assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _range_order(members: Assignees) -> Callable[[str], tuple[bool, str]]:
    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return order


def _subscribers(member_ids: Iterable[str], members: Assignees) -> dict[uuid.UUID, list[str]]:
    """The subscribers of each topic, in the order of ``member_ids``."""
    subscribers: dict[uuid.UUID, list[str]] = {}
    for member_id in member_ids:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    return subscribers


def _kept(members: Assignees, partitions: Mapping[uuid.UUID, int]) -> dict[str, list[_Partition]]:
    """The partitions that each member has, may keep by its subscription, and nobody before it has."""
    taken: set[_Partition] = set()
    kept: dict[str, list[_Partition]] = {}
    for member_id in sorted(members):
        topics = members[member_id].topics
        kept[member_id] = held = []
        for topic, numbers in sorted(members[member_id].assigned.items()):
            if topic in topics:
                held += [
                    (topic, number)
                    for number in sorted(numbers)
                    if number < partitions[topic] and (topic, number) not in taken
                ]
        taken.update(held)
    return kept


def _fill_quotas(
    kept: dict[str, list[_Partition]], topics: frozenset[uuid.UUID], partitions: Mapping[uuid.UUID, int]
) -> None:
    """Gives every member its equal share. Those with the most partitions may have one more than others, so that
    the least must be taken away.
    """
    least, extra = divmod(sum(partitions[topic] for topic in topics), len(kept))
    by_size = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    quotas = {member_id: least + (number < extra) for number, member_id in enumerate(by_size)}
    for member_id, held in kept.items():
        del held[quotas[member_id] :]
    free = _free(kept, topics, partitions)
    for member_id in by_size:
        wanted = quotas[member_id] - len(kept[member_id])
        kept[member_id] += free[:wanted]
        del free[:wanted]


def _free(
    kept: Mapping[str, Iterable[_Partition]],
    topics: Iterable[uuid.UUID],
    partitions: Mapping[uuid.UUID, int],
) -> list[_Partition]:
    taken = {partition for held in kept.values() for partition in held}
    every = ((topic, number) for topic in sorted(topics) for number in range(partitions[topic]))
    return [partition for partition in every if partition not in taken]


def _fill_least_loaded(
    kept: dict[str, list[_Partition]],
    subscribers: Mapping[uuid.UUID, list[str]],
    partitions: Mapping[uuid.UUID, int],
) -> None:
    """Gives each free partition to the subscriber with the fewest. Topics with few subscribers come first."""
    free: dict[uuid.UUID, list[_Partition]] = {}
    for partition in _free(kept, subscribers, partitions):
        free.setdefault(partition[0], []).append(partition)
    for topic in sorted(free, key=lambda topic: (len(subscribers[topic]), topic)):
        loads = [(len(kept[member_id]), member_id) for member_id in subscribers[topic]]
        heapq.heapify(loads)
        for partition in free[topic]:
            load, member_id = loads[0]
            kept[member_id].append(partition)
            heapq.heapreplace(loads, (load + 1, member_id))


def _balance(kept: dict[str, list[_Partition]], subscribers: Mapping[uuid.UUID, list[str]]) -> None:
    """Moves partitions one by one from a member with many to a subscriber with at least two fewer."""
    owners = {partition: member_id for member_id, held in kept.items() for partition in held}
    loads = {member_id: len(held) for member_id, held in kept.items()}
    for _ in range(_MOST_ROUNDS):
        if not _balance_once(owners, loads, subscribers):
            break
    for held in kept.values():
        held.clear()
    for partition, member_id in owners.items():
        kept[member_id].append(partition)


def _balance_once(
    owners: dict[_Partition, str], loads: dict[str, int], subscribers: Mapping[uuid.UUID, list[str]]
) -> bool:
    """Visits each partition once. Returns whether one has moved."""
    moved = False
    by_topic: dict[uuid.UUID, list[_Partition]] = {}
    for partition in owners:
        by_topic.setdefault(partition[0], []).append(partition)
    for topic, ours in by_topic.items():
        least = [(loads[member_id], member_id) for member_id in subscribers[topic]]
        heapq.heapify(least)
        for partition in ours:
            while least[0][0] != loads[least[0][1]]:  # its load has changed since it was put there
                heapq.heapreplace(least, (loads[least[0][1]], least[0][1]))
            load, member_id = least[0]
            owner = owners[partition]
            if loads[owner] < load + 2:
                continue
            owners[partition] = member_id
            loads[owner] -= 1
            loads[member_id] += 1
            heapq.heappush(least, (loads[owner], owner))
            moved = True
    return moved


def _grouped(held: Iterable[_Partition]) -> Assignment:
    by_topic: dict[uuid.UUID, set[int]] = {}
    for topic, number in held:
        by_topic.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in by_topic.items()}
