"""The replication throttles (KIP-73) of moves: which replicas are slowed, and what shows that. Pure.

The rate is a dynamic config of the whole cluster. So it is in force at a broker that is away or joins meanwhile, and
can be taken away then. `kafka-reassign-partitions.sh` sets it for each broker. That is how moves of `landline
rebalance` are told from those of others, with no state beside the cluster's: a move is ours if the cluster has the
rate and the topic lists the new replicas. A broker that is filled is throttled as a follower alone, and a partition
that is moved also on its leaders: so they are told apart as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.server.moves.layout import PlacedPartition
from broker.utils.topic_partition import TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
ALL = "*"

Pairs = frozenset[str]


class ThrottledPairs(NamedTuple):
    """A topic's throttled replicas, as ``partition:broker``."""

    leaders: Pairs = frozenset()
    followers: Pairs = frozenset()


Lists = Mapping[str, ThrottledPairs]
NOBODY = ThrottledPairs()


class Throttles(NamedTuple):
    """What is set: the throttled replicas of topics that have any; the cluster's rate for leaders and followers; and
    the brokers with a follower's rate of their own.
    """

    lists: Lists = {}  # noqa: RUF012 (never changed)
    leader_rate: int | None = None
    follower_rate: int | None = None
    own_rates: frozenset[int] = frozenset()

    @property
    def is_on(self) -> bool:
        return self.leader_rate is not None or self.follower_rate is not None

    @property
    def of_all_replicas(self) -> list[str]:
        """The topics of which every replica is throttled, which nobody but an operator asks for."""
        return [topic for topic, each in self.lists.items() if ALL in each.leaders | each.followers]

    def lists_all(self, partition: TopicPartition, brokers: Iterable[int]) -> bool:
        listed = self.lists.get(partition.topic, NOBODY).followers
        return all(pair(partition, broker) in listed for broker in brokers)

    def is_ours(self, partition: TopicPartition, found: PlacedPartition) -> bool:
        """Whether the partition's move, if it has one that copies something, is one of ours."""
        return (
            self.is_on
            and bool(found.adding)
            and self.lists_all(partition, found.adding)
            and self.own_rates.isdisjoint(found.adding)
        )

    def filled(
        self, partitions: Mapping[TopicPartition, PlacedPartition]
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """The partitions of which brokers that are filled are not in sync yet, and those brokers."""
        found: dict[TopicPartition, tuple[int, ...]] = {}
        for topic, listed in self.lists.items():
            led = {each.partition(":")[0] for each in listed.leaders}
            for each in listed.followers:
                number, _, broker = each.partition(":")
                if number in led or not (number.isdecimal() and broker.isdecimal()):
                    continue
                partition = TopicPartition(topic, int(number))
                placed = partitions.get(partition)
                if placed is not None and self._is_filled(placed, int(broker)):
                    found[partition] = (*found.get(partition, ()), int(broker))
        return found

    def _is_filled(self, placed: PlacedPartition, broker: int) -> bool:
        return (
            broker in (*placed.replicas, *placed.removing)
            and broker not in (*placed.isr, *placed.adding)
            and broker not in self.own_rates
        )


def pair(partition: TopicPartition, broker: int) -> str:
    return f"{partition.partition}:{broker}"


def with_pairs(
    lists: Lists, moves: Iterable[tuple[TopicPartition, Iterable[int], Iterable[int]]]
) -> dict[str, ThrottledPairs]:
    """The lists that change when these moves are throttled too: of each partition the brokers that may lead it
    meanwhile, and those that it is copied to. A partition of which a broker is filled is led by nobody here.
    """
    found: dict[str, ThrottledPairs] = {}
    for partition, origin, adding in moves:
        before = found.get(partition.topic, lists.get(partition.topic, NOBODY))
        leaders = {pair(partition, broker) for broker in origin}
        followers = {pair(partition, broker) for broker in adding}
        found[partition.topic] = ThrottledPairs(before.leaders | leaders, before.followers | followers)
    return {topic: after for topic, after in found.items() if after != lists.get(topic, NOBODY)}


def with_filled(
    lists: Lists, broker: int, lacking: Iterable[TopicPartition], moving: Collection[TopicPartition]
) -> dict[str, ThrottledPairs]:
    """The lists that change when a broker that is filled is throttled as a follower alone. A partition that is moving
    keeps its leaders.
    """
    numbers: dict[str, set[str]] = {}
    unled: dict[str, set[str]] = {}
    for partition in lacking:
        numbers.setdefault(partition.topic, set()).add(str(partition.partition))
        if partition not in moving:
            unled.setdefault(partition.topic, set()).add(str(partition.partition))
    found: dict[str, ThrottledPairs] = {}
    for topic, each in numbers.items():
        before, gone = lists.get(topic, NOBODY), unled.get(topic, set())
        leaders = frozenset(one for one in before.leaders if one.partition(":")[0] not in gone)
        after = ThrottledPairs(leaders, before.followers | {f"{number}:{broker}" for number in each})
        if after != before:
            found[topic] = after
    return found


def without_pairs(
    lists: Lists, moving: Iterable[TopicPartition], filled: Mapping[TopicPartition, Iterable[int]]
) -> dict[str, ThrottledPairs]:
    """The lists that change when only the pairs of partitions that move, and of brokers that are filled, stay."""
    numbers: dict[str, set[str]] = {}
    pairs: dict[str, set[str]] = {}
    for partition in moving:
        numbers.setdefault(partition.topic, set()).add(str(partition.partition))
    for partition, brokers in filled.items():
        pairs.setdefault(partition.topic, set()).update(pair(partition, broker) for broker in brokers)
    found: dict[str, ThrottledPairs] = {}
    for topic, before in lists.items():
        stays = numbers.get(topic, set())
        leaders, followers = (_only(each, stays) for each in before)
        after = ThrottledPairs(leaders, followers | (before.followers & pairs.get(topic, set())))
        if after != before:
            found[topic] = after
    return found


def _only(pairs: Pairs, numbers: set[str]) -> Pairs:
    return frozenset(each for each in pairs if each == ALL or each.partition(":")[0] in numbers)
