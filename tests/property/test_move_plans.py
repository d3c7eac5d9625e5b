"""Plans of moves, for any layout: what they may never do, and that they move no more than they have to."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.moves.layout import Layout, TooFewError, Wish, added
from broker.server.moves.planner import plan
from tests.support.layouts import after, as_created, counts, fewest_moves, layouts, leads, sizes

# Bytes do not matter.
COUNTS = Wish(tolerance=1e9)


def spread(layout, replicas):
    return len({layout.racks.get(broker) or broker for broker in replicas})


@settings(max_examples=60, deadline=None)
@given(layouts(min_brokers=2), st.data())
def test_a_plan_keeps_the_number_of_replicas_distinct_on_live_brokers_and_is_empty_for_its_own_result(
    layout, data
):
    among = st.sets(st.sampled_from(sorted(layout.racks)), max_size=len(layout.racks) - 1)
    drained = frozenset(data.draw(among))
    excluded = frozenset(data.draw(among)) - drained
    wish = Wish(drained, excluded, only_drain=data.draw(st.booleans()), slack=0)
    try:
        targets = plan(layout, wish)
    except TooFewError:
        return
    for partition, target in targets.items():
        before = layout.partitions[partition].replicas
        assert len(set(target)) == len(target) == len(before)
        assert drained.isdisjoint(target)
        assert excluded.isdisjoint(set(target) - set(before))
        assert set(target) <= set(layout.racks)
    assert plan(after(layout, targets), wish) == {}


@settings(max_examples=60, deadline=None)
@given(layouts(racks=False), st.data())
def test_without_racks_each_broker_gets_its_share_by_the_fewest_moves_there_can_be(layout, data):
    capacity = {broker: data.draw(st.sampled_from((1.0, 2.0, 3.0))) for broker in layout.racks}
    wish = Wish(capacity=capacity, tolerance=1e9)
    targets = plan(layout, wish)
    result = counts(after(layout, targets))
    # A broker has at most one replica of a partition, whatever its share is.
    most = len(layout.partitions)
    leaves = len(layout.racks) - max(len(found.replicas) for found in layout.partitions.values())
    whole, parts = sum(result.values()), sum(capacity.values())
    shares = {broker: whole * part / parts for broker, part in capacity.items()}
    if leaves >= 2 and all(share <= most for share in shares.values()):
        for broker, share in shares.items():
            assert math.floor(share) <= result[broker] <= math.ceil(share)
        assert sum(map(len, added(layout, targets).values())) == fewest_moves(layout, capacity)
    else:
        over = [counts(layout)[broker] - share for broker, share in shares.items()]
        assert max(result[broker] - share for broker, share in shares.items()) <= max(1, *over)


@settings(max_examples=60, deadline=None)
@given(layouts(min_brokers=2), st.data())
def test_a_drain_moves_what_is_on_the_broker_and_nothing_else(layout, data):
    gone = data.draw(st.sampled_from(sorted(layout.racks)))
    most = (
        max(len(found.replicas) for found in layout.partitions.values() if gone in found.replicas)
        if any(gone in found.replicas for found in layout.partitions.values())
        else 0
    )
    wish = Wish(frozenset({gone}), only_drain=True)
    if most > len(layout.racks) - 1:
        with pytest.raises(TooFewError, match="would remain"):
            plan(layout, wish)
        return
    targets = plan(layout, wish)
    on_it = {partition for partition, found in layout.partitions.items() if gone in found.replicas}
    assert targets.keys() == on_it
    assert all(len(new) == 1 for new in added(layout, targets).values())


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_replicas_are_in_as_many_racks_as_when_kafka_creates_the_topic(layout):
    if None in layout.racks.values():
        return
    racks = len(set(layout.racks.values()))
    for found in after(layout, plan(layout, Wish())).partitions.values():
        assert spread(layout, found.replicas) == min(len(found.replicas), racks)


@settings(max_examples=60, deadline=None)
@given(layouts(racks=False))
def test_each_broker_leads_as_much_as_its_replicas_allow(layout):
    """Nobody could hand a partition over to a broker that leads two fewer."""
    result = after(layout, plan(layout, COUNTS))
    found = leads(result)
    for partition in result.partitions.values():
        for broker in partition.replicas[1:]:
            assert found[partition.replicas[0]] - found[broker] < 2 or found[broker] >= math.floor(
                len(result.partitions) / len(layout.racks)
            )


@settings(max_examples=60, deadline=None)
@given(layouts(racks=False), st.data())
def test_bytes_become_no_less_even(layout, data):
    wish = Wish(slack=0, tolerance=data.draw(st.sampled_from((0.05, 0.1, 0.3))))
    by_count = after(layout, plan(layout, COUNTS))
    by_bytes = after(layout, plan(layout, wish))

    def unevenness(which):
        found = sizes(which)
        share = sum(found.values()) / len(layout.racks)
        return sum((found[broker] - share) ** 2 for broker in layout.racks)

    assert unevenness(by_bytes) <= unevenness(by_count)
    assert Counter(counts(by_bytes).values()) == Counter(counts(by_count).values())


@pytest.mark.parametrize("racks", [None, "own"])
def test_a_broker_that_joins_gets_its_share_of_replicas_bytes_and_leaders(racks):
    before = as_created({n: f"r{n}" if racks else None for n in (1, 2, 3)}, topics=4, partitions=12, factor=3)
    layout = Layout({**before.racks, 4: "r4" if racks else None}, before.partitions)
    targets = plan(layout, Wish(slack=0))
    result = after(layout, targets)
    assert [counts(result)[n] for n in (1, 2, 3, 4)] == [36] * 4
    assert [leads(result)[n] for n in (1, 2, 3, 4)] == [12] * 4
    assert set(sizes(result).values()) == {36 << 20}
    assert sum(map(len, added(layout, targets).values())) == 36
    of_topics = Counter(topic for (topic, _), new in added(layout, targets).items() for _ in new)
    assert set(of_topics.values()) == {9}, "of each topic"


def test_a_broker_of_twice_the_capacity_gets_twice_the_replicas():
    layout = as_created(dict.fromkeys((1, 2, 3, 4)), topics=5, partitions=10, factor=2)
    result = after(layout, plan(layout, Wish(capacity={4: 2.0})))
    assert [counts(result)[n] for n in (1, 2, 3, 4)] == [20, 20, 20, 40]


def test_large_partitions_change_places_with_small_ones_where_a_broker_has_too_many_bytes():
    created = as_created(dict.fromkeys((1, 2)), topics=1, partitions=8, factor=1)
    layout = Layout(
        created.racks,
        {
            partition: found._replace(size=(800 if found.replicas == (1,) else 10) << 20)
            for partition, found in created.partitions.items()
        },
    )
    result = after(layout, plan(layout, Wish()))
    assert sizes(result) == {1: 1620 << 20, 2: 1620 << 20}
    assert counts(result) == {1: 4, 2: 4}
