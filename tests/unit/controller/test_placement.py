"""New partitions are spread evenly over brokers and racks, by Kafka's algorithm."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.rules.placement import alternate_racks, assign_replicas


def no_racks(*brokers):
    return dict.fromkeys(brokers)


def test_the_round_of_kafkas_documentation():
    # Five brokers, ten partitions, start and shift 0: the example in Kafka's AdminUtils.
    assignment = assign_replicas(no_racks(0, 1, 2, 3, 4), 10, 3, start_index=0, start_shift=0)
    assert list(assignment.values()) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_brokers_alternate_between_racks():
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]


def test_the_rack_aware_round_of_kafkas_documentation():
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assignment = assign_replicas(racks, 7, 3, start_index=0, start_shift=0)
    assert list(assignment.values()) == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_added_partitions_go_on_with_the_round():
    brokers = no_racks(0, 1, 2)
    whole = assign_replicas(brokers, 6, 2, start_index=0, start_shift=0)
    first = assign_replicas(brokers, 2, 2, start_index=0, start_shift=0)
    added = assign_replicas(brokers, 4, 2, first_partition=2, start_index=0, start_shift=0)
    assert {p: r[0] for p, r in (first | added).items()} == {p: r[0] for p, r in whole.items()}


def test_racks_do_not_count_when_a_broker_has_none():
    assert len(assign_replicas({1: "a", 2: "a", 3: None}, 3, 3)) == 3


@pytest.mark.parametrize("replication_factor", [0, -1, 4])
def test_impossible_replication_factors_are_refused(replication_factor):
    with pytest.raises(ValueError, match="cannot be put on 3 brokers"):
        assign_replicas(no_racks(1, 2, 3), 1, replication_factor)


def test_one_broker_takes_it_all():
    assert assign_replicas(no_racks(7), 3, 1) == {0: (7,), 1: (7,), 2: (7,)}


brokers_with_racks = st.dictionaries(
    st.integers(0, 30), st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9
)


@given(brokers_with_racks, st.integers(1, 30), st.data(), st.booleans())
def test_every_assignment_is_valid_and_spread(racks, partitions, data, with_racks):
    replication_factor = data.draw(st.integers(1, len(racks)))
    brokers = racks if with_racks else dict.fromkeys(racks)
    seed = data.draw(st.integers(0, 1000))
    assignment = assign_replicas(brokers, partitions, replication_factor, rng=Random(seed))
    assert sorted(assignment) == list(range(partitions))
    rack_count = len(set(racks.values()))
    for replicas in assignment.values():
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert set(replicas) <= set(racks)
        if with_racks:
            assert len({racks[r] for r in replicas}) == min(replication_factor, rack_count)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    counts = [leaders[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1
