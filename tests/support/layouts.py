"""Layouts of clusters for tests of plans: hypothesis strategies, and what may be asked of any layout."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import strategies as st

from broker.controller.rules.placement import assign_replicas
from broker.server.moves.layout import Layout, PlacedPartition
from broker.utils.topic_partition import TopicPartition

MIB = 1 << 20


@st.composite
def layouts(draw, racks=True, min_brokers=1):
    """Brokers of which some joined after the topics were created, or were full when others were; any replicas."""
    ids = draw(st.lists(st.integers(1, 12), min_size=min_brokers, max_size=7, unique=True))
    named = draw(st.booleans()) if racks else False
    names = st.sampled_from("abc") if named else st.none()
    found = {broker: draw(names) for broker in sorted(ids)}
    partitions = {}
    for topic in range(draw(st.integers(1, 4))):
        factor = draw(st.integers(1, min(len(ids), 3)))
        among = st.lists(st.sampled_from(ids), min_size=factor, max_size=factor, unique=True)
        for number in range(draw(st.integers(1, 9))):
            replicas = tuple(draw(among))
            size = draw(st.sampled_from((0, 1, 5 * MIB, 64 * MIB, 900 * MIB)))
            partitions[TopicPartition(f"t{topic}", number)] = PlacedPartition(
                replicas, replicas[0], frozenset(replicas), size
            )
    return Layout(found, partitions)


def as_created(racks, topics, partitions, factor, size=MIB):
    """Topics as Kafka creates them on these brokers."""
    found = {}
    for topic in range(topics):
        rows = assign_replicas(racks, partitions, factor, start_index=topic, start_shift=topic)
        for number, replicas in rows.items():
            found[TopicPartition(f"t{topic}", number)] = PlacedPartition(
                replicas, replicas[0], frozenset(replicas), size
            )
    return Layout(dict(racks), found)


def after(layout, targets):
    """The layout when all moves are done."""
    moved = {
        partition: found._replace(replicas=targets[partition], isr=frozenset(targets[partition]))
        if partition in targets
        else found
        for partition, found in layout.partitions.items()
    }
    return Layout(layout.racks, moved)


def counts(layout):
    return Counter(broker for found in layout.partitions.values() for broker in found.replicas)


def sizes(layout):
    found = Counter()
    for partition in layout.partitions.values():
        found.update(dict.fromkeys(partition.replicas, partition.size))
    return found


def leads(layout):
    return Counter(found.replicas[0] for found in layout.partitions.values())


def fewest_moves(layout, capacity):
    """No plan can make each broker's count its share, rounded down or up, with fewer."""
    found = counts(layout)
    whole, parts = sum(found[broker] for broker in capacity), sum(capacity.values())
    shares = {broker: whole * part / parts for broker, part in capacity.items()}
    too_many = sum(max(found[broker] - math.ceil(share), 0) for broker, share in shares.items())
    too_few = sum(max(math.floor(share) - found[broker], 0) for broker, share in shares.items())
    return max(too_many, too_few)
