"""Chooses the brokers for a new partition's replicas: Kafka's AdminUtils.assignReplicasToBrokers. Pure except
for ``rng``.

First replicas are assigned to the brokers round-robin from a random start, which spreads the leaders evenly.
Each further replica is shifted by a distance that grows with every round. So the followers of one broker's
partitions are spread over all brokers. With racks, brokers are taken from the racks in turn, and no rack gets
a second replica before every rack has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

_RANDOM = Random()


def assign_replicas(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    first_partition: int = 0,
    start_index: int = -1,
    start_shift: int = -1,
    rng: Random = _RANDOM,
) -> dict[int, tuple[int, ...]]:
    """The replicas of ``partitions`` new partitions, numbered from ``first_partition``.

    ``brokers`` maps live ids to racks; racks count only if every broker has one. Negative values of
    ``start_index`` and ``start_shift`` are replaced by random ones. When partitions are added, Kafka passes
    the position of partition 0's first replica for both, which continues the round. Raises ValueError if
    there are fewer brokers than replicas.
    """
    if not 0 < replication_factor <= len(brokers):
        raise ValueError(f"{replication_factor} replicas cannot be put on {len(brokers)} brokers")
    racks = _all_racks(brokers)
    order = sorted(brokers) if racks is None else alternate_racks(racks)
    start = start_index if start_index >= 0 else rng.randrange(len(order))
    shift = start_shift if start_shift >= 0 else rng.randrange(len(order))
    shift = max(shift, 0)
    assignment = {}
    for partition in range(max(first_partition, 0), max(first_partition, 0) + partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        if racks is None:
            replicas = _spread(order, first, shift, replication_factor)
        else:
            replicas = _spread_over_racks(order, racks, first, shift, replication_factor)
        assignment[partition] = replicas
    return assignment


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers, ordered so that neighbours are in different racks if possible: one of each rack, then the
    next of each.
    """
    queues = {rack: sorted(b for b in racks if racks[b] == rack) for rack in sorted(set(racks.values()))}
    order: list[int] = []
    while len(order) < len(racks):
        order += [queue.pop(0) for queue in queues.values() if queue]
    return order


def _all_racks(brokers: Mapping[int, str | None]) -> dict[int, str] | None:
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    return racks if len(racks) == len(brokers) else None


def _spread(order: Sequence[int], first: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    replicas = [order[first]]
    replicas += [
        order[_replica_index(first, shift, number, len(order))] for number in range(replication_factor - 1)
    ]
    return tuple(replicas)


def _spread_over_racks(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    replicas = [order[first]]
    rack_count = len(set(racks.values()))
    position = 0
    while len(replicas) < replication_factor:
        broker = order[_replica_index(first, shift * rack_count, position, len(order))]
        position += 1
        used_racks = {racks[replica] for replica in replicas}
        rack_is_fresh = racks[broker] not in used_racks or len(used_racks) == rack_count
        broker_is_fresh = broker not in replicas
        if broker_is_fresh and rack_is_fresh:
            replicas.append(broker)
    return tuple(replicas)


def _replica_index(first: int, shift: int, number: int, brokers: int) -> int:
    """The index of a further replica. It is never ``first`` itself: the distance from it is 1
    to brokers-1.
    """
    return (first + 1 + (shift + number) % (brokers - 1)) % brokers
