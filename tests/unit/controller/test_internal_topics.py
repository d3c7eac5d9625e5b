"""Internal topics that were made in a smaller cluster get their replicas when brokers join."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.internal_topics import added_replicas
from broker.controller.settings import ControllerSettings
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition
from tests.support.term_world import SETTINGS, TermWorld

FACTORS = replace(SETTINGS, internal_topic_factors={GROUP_METADATA_TOPIC: 3})


def world_of(*broker_ids: int, settings: ControllerSettings = FACTORS) -> TermWorld:
    world = TermWorld(dict.fromkeys(broker_ids, None), settings=settings)
    world.elect()
    return world


def replicas(world: TermWorld) -> dict[int, tuple[int, ...]]:
    return dict(world.assignment(GROUP_METADATA_TOPIC).partitions)


def check(world: TermWorld) -> None:
    world.events.run_later("internal_topics")
    world.grow_isrs()


@given(
    present=st.integers(1, 3).flatmap(
        lambda size: st.dictionaries(
            st.integers(0, 20),
            st.lists(st.integers(1, 3), min_size=1, max_size=size, unique=True).map(tuple),
            min_size=1,
        )
    ),
    brokers=st.integers(3, 6),
    factor=st.integers(1, 5),
    racks=st.integers(1, 3),
)
def test_added_replicas_stand_behind_the_present_ones_on_other_brokers_and_racks(
    present, brokers, factor, racks
):
    rack_of = {broker_id: f"rack{broker_id % racks}" for broker_id in range(1, brokers + 1)}
    raised = added_replicas(present, rack_of, factor)
    for number, before in present.items():
        after = raised.get(number, before)
        assert after[: len(before)] == before
        assert len(set(after)) == len(after) == max(len(before), min(factor, brokers))
        used = [rack_of[broker_id] for broker_id in after]
        for place in range(len(before), len(after)):
            fresh_racks = set(rack_of.values()) - set(used[:place])
            assert not fresh_racks or used[place] in fresh_racks, "a rack was passed over"


def test_added_replicas_are_spread_evenly():
    raised = added_replicas(dict.fromkeys(range(50), (1,)), dict.fromkeys(range(1, 6), None), 3)
    assert Counter(b for ids in raised.values() for b in ids) == {1: 50, 2: 25, 3: 25, 4: 25, 5: 25}


def test_replicas_are_added_when_brokers_join_and_no_leader_moves():
    world = world_of(1)
    world.create(GROUP_METADATA_TOPIC, {0: (1,), 1: (1,)})
    check(world)
    assert replicas(world) == {0: (1,), 1: (1,)}
    world.join(2)
    check(world)
    assert replicas(world) == {0: (1, 2), 1: (1, 2)}
    world.join(3)
    world.join(4)
    check(world)
    assert {len(ids) for ids in replicas(world).values()} == {3}
    for number in (0, 1):
        partition = TopicPartition(GROUP_METADATA_TOPIC, number)
        assert world.state(partition).leader == 1
        assert set(world.state(partition).isr) == set(replicas(world)[number])
    epochs = [world.state(TopicPartition(GROUP_METADATA_TOPIC, n)).leader_epoch for n in (0, 1)]
    world.join(5)
    check(world)
    assert epochs == [world.state(TopicPartition(GROUP_METADATA_TOPIC, n)).leader_epoch for n in (0, 1)]


def test_a_new_controller_adds_what_the_last_one_did_not():
    world = world_of(1, settings=replace(FACTORS, raise_internal_topics=False))
    world.create(GROUP_METADATA_TOPIC, {0: (1,)})
    world.join(2)
    check(world)
    assert replicas(world) == {0: (1,)}, "switched off"
    world.settings = FACTORS
    world.elect()
    check(world)
    assert replicas(world) == {0: (1, 2)}


def test_a_topic_that_is_made_while_brokers_join_is_looked_at_too():
    world = world_of(1, 2, 3)
    world.events.run_later("internal_topics")
    world.create(GROUP_METADATA_TOPIC, {0: (2,)})
    check(world)
    assert replicas(world) == {0: (2, 1, 3)}


def test_a_replica_that_is_away_for_a_while_is_not_replaced():
    world = world_of(1, 2, 3)
    world.create(GROUP_METADATA_TOPIC, {0: (1, 2)})
    world.leave(2)
    check(world)
    assert replicas(world) == {0: (1, 2)}
    world.join(2)
    check(world)
    assert replicas(world) == {0: (1, 2, 3)}


@pytest.mark.parametrize("topic", ["orders", "__transaction_state"])
def test_only_internal_topics_with_a_wanted_factor_are_touched(topic):
    world = world_of(1, 2, 3)
    world.create(topic, {0: (1,)})
    check(world)
    assert world.assignment(topic).partitions == {0: (1,)}
