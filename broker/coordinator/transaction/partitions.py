"""The partitions of a transaction: for each topic, a set of partition numbers. Pure.

They are values, which are shared and never changed. Adding a partition copies one topic's set, so a transaction
of very many partitions stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

from broker.utils.topic_partition import TopicPartition

Partitions = Mapping[str, frozenset[int]]

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})


def partitions_of(topic_partitions: Iterable[TopicPartition]) -> Partitions:
    found: dict[str, set[int]] = {}
    for topic, partition in topic_partitions:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}


def includes(partitions: Partitions, others: Partitions) -> bool:
    """Whether all of ``others`` are in ``partitions``."""
    nothing: frozenset[int] = frozenset()
    return all(numbers <= partitions.get(topic, nothing) for topic, numbers in others.items())


def joined(partitions: Partitions, others: Partitions) -> Partitions:
    result = dict(partitions)
    for topic, numbers in others.items():
        known = result.get(topic)
        result[topic] = numbers if known is None else known | numbers
    return result


def common(partitions: Partitions, others: Partitions) -> Partitions:
    """The partitions that are in both."""
    if partitions is others:
        return partitions
    nothing: frozenset[int] = frozenset()
    both = {topic: numbers & partitions.get(topic, nothing) for topic, numbers in others.items()}
    return {topic: numbers for topic, numbers in both.items() if numbers}


def without(partitions: Partitions, others: Partitions) -> Partitions:
    result = dict(partitions)
    for topic, numbers in others.items():
        left = result.pop(topic, frozenset()) - numbers
        if left:
            result[topic] = left
    return result


def count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def in_parts(partitions: Partitions, most: int) -> list[Partitions]:
    """The same partitions, in parts of at most ``most``."""
    if count(partitions) <= most:
        return [partitions]
    every, parts = iter(each_of(partitions)), []
    while part := partitions_of(islice(every, most)):
        parts.append(part)
    return parts


def each_of(partitions: Partitions) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers)
