"""Which replicas are where, and how large they are: what plans of moves begin with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.utils.topic_partition import TopicPartition

Ids = tuple[int, ...]
Targets = Mapping[TopicPartition, Ids]


class PlacedPartition(NamedTuple):
    """A partition. ``replicas`` are those that it has, or will have when its move is done; ``adding`` and ``removing``
    are the move's, if there is one. ``size`` is in bytes; the largest replica's.
    """

    replicas: Ids
    leader: int
    isr: frozenset[int]
    size: int = 0
    adding: Ids = ()
    removing: Ids = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class Layout:
    """The live brokers with their racks, and all partitions."""

    racks: Mapping[int, str | None]
    partitions: Mapping[TopicPartition, PlacedPartition]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a layout is to become. Brokers in ``drained`` lose all replicas, and with ``only_drain`` nothing else is
    moved. Brokers in ``excluded`` neither get nor give. A broker's share is in proportion to its ``capacity``, 1
    unless it is given; the bytes of a broker may be ``tolerance`` above its share, and ``slack`` in any case.
    """

    drained: frozenset[int] = frozenset()
    excluded: frozenset[int] = frozenset()
    capacity: Mapping[int, float] = field(default_factory=dict)
    only_drain: bool = False
    tolerance: float = 0.1
    slack: int = 64 << 20


class TooFewError(Exception):
    """Fewer brokers would remain than a topic has replicas."""


def recipients(layout: Layout, wish: Wish) -> dict[int, float]:
    """The brokers that may get replicas, with their capacities. Raises :class:`TooFewError`."""
    found = {
        broker: wish.capacity.get(broker, 1.0)
        for broker in layout.racks
        if broker not in wish.drained | wish.excluded and wish.capacity.get(broker, 1.0) > 0
    }
    needed: dict[str, int] = {}
    for (topic, _), partition in layout.partitions.items():
        if not wish.drained.isdisjoint(partition.replicas):
            needed[topic] = max(needed.get(topic, 0), len(partition.replicas))
    many = sorted(
        topic
        for topic, factor in needed.items()
        if factor > len(found) + _kept_elsewhere(layout, wish, topic, found)
    )
    if many:
        told = ", ".join(f"{topic} ({needed[topic]})" for topic in many[:5])
        more = f" and {len(many) - 5} more" if len(many) > 5 else ""
        raise TooFewError(
            f"{len(found)} brokers would remain ({', '.join(map(str, sorted(found)))}), and topics have more replicas: "
            f"{told}{more}. Add a broker, or give these topics fewer replicas"
        )
    return found


def _kept_elsewhere(layout: Layout, wish: Wish, topic: str, found: Mapping[int, float]) -> int:
    """How many replicas every drained partition of the topic keeps on brokers that get nothing."""
    return min(
        len(set(partition.replicas) - wish.drained - found.keys())
        for (name, _), partition in layout.partitions.items()
        if name == topic and not wish.drained.isdisjoint(partition.replicas)
    )


def added(layout: Layout, targets: Targets) -> dict[TopicPartition, Ids]:
    """The replicas that each move adds, which is what has to be copied."""
    return {
        partition: new
        for partition, target in targets.items()
        if (new := tuple(each for each in target if each not in layout.partitions[partition].replicas))
    }


class Amount(NamedTuple):
    """How much is to be copied: replicas and bytes, and the bytes of the broker that gets or sends the most."""

    replicas: int
    total: int
    most: int

    def seconds(self, rate: int) -> float:
        """How long that takes at this many bytes per second of each broker."""
        return self.most / rate


def amount(layout: Layout, new: Mapping[TopicPartition, Ids]) -> Amount:
    """How much it is to copy these replicas from the leaders."""
    at: dict[tuple[str, int], int] = {}
    for partition, brokers in new.items():
        found = layout.partitions[partition]
        for broker in brokers:
            for end in (("to", broker), ("from", found.leader)):
                at[end] = at.get(end, 0) + found.size
    total = sum(size for (end, _), size in at.items() if end == "to")
    return Amount(sum(map(len, new.values())), total, max(at.values(), default=0))


def of_brokers(layout: Layout, brokers: Iterable[int]) -> list[TopicPartition]:
    """The partitions that have, or will have, a replica on one of these brokers."""
    wanted = set(brokers)
    return [
        partition
        for partition, found in layout.partitions.items()
        if not wanted.isdisjoint((*found.replicas, *found.removing))
    ]
