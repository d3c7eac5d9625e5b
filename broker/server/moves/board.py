"""The replicas of all partitions while a plan is made: counts and bytes by broker, racks, and one change. Pure.

`planner` decides which changes to make.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from broker.server.moves.layout import Ids, Layout
from broker.utils.topic_partition import TopicPartition


class Board:
    """Replicas by partition, of which only ``movable`` ones change. Invariant: the replicas of a partition are
    distinct, and their number stays. ``capacity`` has the brokers that may get replicas; only they count for shares.
    """

    def __init__(
        self, layout: Layout, capacity: Mapping[int, float], movable: Collection[TopicPartition]
    ) -> None:
        self.capacity = capacity
        self.replicas: dict[TopicPartition, list[int]] = {
            partition: list(found.replicas) for partition, found in sorted(layout.partitions.items())
        }
        self.size = {partition: found.size for partition, found in layout.partitions.items()}
        self.count: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.of_topic: Counter[tuple[str, int]] = Counter()
        self.on: dict[int, set[TopicPartition]] = {broker: set() for broker in capacity}
        self._racks = self._usable_racks(layout.racks)
        self._movable = frozenset(movable)
        for partition, replicas in self.replicas.items():
            for broker in replicas:
                self._note(partition, broker, 1)
        self._total = sum(capacity.values())

    def _usable_racks(self, racks: Mapping[int, str | None]) -> dict[int, str]:
        """Racks count only if every broker has one, as in Kafka."""
        known = {broker: rack for broker, rack in racks.items() if rack is not None}
        return known if len(known) == len(racks) else {}

    def _note(self, partition: TopicPartition, broker: int, sign: int) -> None:
        self.count[broker] += sign
        self.bytes[broker] += sign * self.size[partition]
        self.of_topic[partition.topic, broker] += sign
        if partition in self._movable:
            here = self.on.setdefault(broker, set())
            (here.add if sign > 0 else here.discard)(partition)

    # -- shares

    def share(self, what: Mapping[int, int], broker: int) -> float:
        """This broker's part of a count or of the bytes that all brokers with a capacity have."""
        return sum(what[each] for each in self.capacity) * self.capacity[broker] / self._total

    def over(self, what: Mapping[int, int]) -> dict[int, float]:
        """By how much each broker is above its share; negative below it."""
        whole = sum(what[each] for each in self.capacity)
        return {broker: what[broker] - whole * part / self._total for broker, part in self.capacity.items()}

    def may_give(self, broker: int) -> bool:
        """Whether its count stays at its share or above when it loses a replica."""
        return self.count[broker] - 1 >= math.floor(self.share(self.count, broker))

    def may_get(self, broker: int) -> bool:
        return self.count[broker] + 1 <= math.ceil(self.share(self.count, broker))

    def fill(self, broker: int) -> tuple[float, float, int]:
        """How full a broker is, the emptiest first."""
        part = self.capacity[broker]
        return (self.count[broker] + 1) / part, self.bytes[broker] / part, broker

    # -- racks

    def spread(self, replicas: Iterable[int]) -> int:
        """The number of racks of these replicas. A broker that is gone has one of its own that nobody else has."""
        return len({self._racks.get(broker, broker) for broker in replicas})

    def best_spread(self, replicas: Collection[int]) -> int:
        """The most racks that so many replicas can have, on brokers that may get some or have them."""
        return min(len(replicas), self.spread({*self.capacity, *replicas}))

    def keeps_racks(self, partition: TopicPartition, old: int, new: int) -> bool:
        """Whether its replicas have no fewer racks with ``new`` instead of ``old``."""
        if not self._racks:
            return True
        before = self.replicas[partition]
        after = [new if broker == old else broker for broker in before]
        return self.spread(after) >= min(self.spread(before), self.best_spread(after))

    @property
    def has_racks(self) -> bool:
        return bool(self._racks)

    # -- changes

    def may_move(self, partition: TopicPartition, old: int, new: int) -> bool:
        return new not in self.replicas[partition] and self.keeps_racks(partition, old, new)

    def move(self, partition: TopicPartition, old: int, new: int) -> None:
        """Replaces a replica; the new one takes its place in the list."""
        replicas = self.replicas[partition]
        replicas[replicas.index(old)] = new
        self._note(partition, old, -1)
        self._note(partition, new, 1)

    def movable_on(self, broker: int) -> list[TopicPartition]:
        return sorted(self.on.get(broker, ()))

    def targets(self, layout: Layout) -> dict[TopicPartition, Ids]:
        """What differs from the layout."""
        return {
            partition: tuple(replicas)
            for partition, replicas in self.replicas.items()
            if tuple(replicas) != layout.partitions[partition].replicas
        }
