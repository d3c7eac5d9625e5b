"""The replication throttles (KIP-73) of moves: which replicas are slowed, and what shows that. Pure.

The rate is a dynamic config of the whole cluster. So it is in force at a broker that is away or joins meanwhile, and
can be taken away then. `kafka-reassign-partitions.sh` sets it for each broker. That is how moves of `landline
rebalance` are told from those of others, with no state beside the cluster's: a move is ours if the cluster has the
rate and the topic lists the new replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def pair(partition: TopicPartition, broker: int) -> str:
    return f"{partition.partition}:{broker}"


def with_pairs(
    lists: Lists, moves: Iterable[tuple[TopicPartition, Iterable[int], Iterable[int]]]
) -> dict[str, ThrottledPairs]:
    """The lists that change when these moves are throttled too: of each partition the brokers that may lead it
    meanwhile, and those that it is copied to.
    """
    found: dict[str, ThrottledPairs] = {}
    for partition, origin, adding in moves:
        before = found.get(partition.topic, lists.get(partition.topic, NOBODY))
        leaders = {pair(partition, broker) for broker in origin}
        followers = {pair(partition, broker) for broker in adding}
        found[partition.topic] = ThrottledPairs(before.leaders | leaders, before.followers | followers)
    return {topic: after for topic, after in found.items() if after != lists.get(topic, NOBODY)}


def without_pairs(lists: Lists, kept: Iterable[TopicPartition]) -> dict[str, ThrottledPairs]:
    """The lists that change when only pairs of ``kept`` partitions stay."""
    numbers: dict[str, set[str]] = {}
    for partition in kept:
        numbers.setdefault(partition.topic, set()).add(str(partition.partition))
    found: dict[str, ThrottledPairs] = {}
    for topic, before in lists.items():
        stays = numbers.get(topic, set())
        after = ThrottledPairs(*(_only(pairs, stays) for pairs in before))
        if after != before:
            found[topic] = after
    return found


def _only(pairs: Pairs, numbers: set[str]) -> Pairs:
    return frozenset(each for each in pairs if each == ALL or each.partition(":")[0] in numbers)
