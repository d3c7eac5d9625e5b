"""Elections that somebody asks for: ElectLeaders, the old tools' znode, and unclean ones that a config allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.controller.elections import ElectionType
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.admin_requests import PREFERRED_ELECTION
from broker.zookeeper.znodes import LeaderRecoveryState, dump
from tests.support.term_world import TermWorld

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> TermWorld:
    made = TermWorld(dict.fromkeys(range(4), None))
    made.elect()
    made.create("t", {0: (1, 2), 1: (2, 3)})
    return made


def elect(world: TermWorld, kind: ElectionType, *partitions: TopicPartition) -> dict[TopicPartition, Errors]:
    results = world.term.elections.elect(kind, partitions or None)
    world.run()
    return {partition: result.error for partition, result in results.items()}


def stray(world: TermWorld) -> None:
    """Broker 1 is away for a while, and 2 leads its partition."""
    world.leave(1)
    world.join(1)
    world.alter_isr(T0, (2, 1))
    assert world.state(T0).leader == 2


def test_the_preferred_leader_is_elected_where_another_leads(world):
    stray(world)
    results = world.term.elections.elect(ElectionType.PREFERRED, [T0, T1])
    assert {p: (r.error, r.leader) for p, r in results.items()} == {
        T0: (Errors.NONE, 1),
        T1: (Errors.ELECTION_NOT_NEEDED, None),
    }
    assert world.state(T0).leader == 1
    assert world.brokers.leader_and_isr(2, T0).leader == 1


def test_asked_for_all_partitions_it_tells_only_of_those_that_needed_one(world):
    stray(world)
    assert elect(world, ElectionType.PREFERRED) == {T0: Errors.NONE}
    assert elect(world, ElectionType.PREFERRED) == {}


def test_a_preferred_leader_that_is_dead_or_out_of_sync_is_not_available(world):
    world.leave(1)
    assert elect(world, ElectionType.PREFERRED, T0) == {T0: Errors.PREFERRED_LEADER_NOT_AVAILABLE}
    world.join(1)
    assert elect(world, ElectionType.PREFERRED, T0) == {T0: Errors.PREFERRED_LEADER_NOT_AVAILABLE}
    assert world.state(T0).leader == 2


def test_what_does_not_exist_or_is_being_deleted_is_named(world):
    world.leave(3)
    world.cluster.mark_topic_for_deletion("t")
    world.run()
    nowhere = TopicPartition("nowhere", 0)
    for kind in ElectionType:
        assert elect(world, kind, T0, nowhere) == {
            T0: Errors.INVALID_TOPIC_EXCEPTION,
            nowhere: Errors.UNKNOWN_TOPIC_OR_PARTITION,
        }


def test_an_unclean_election_is_for_partitions_without_a_leader_only(world):
    world.leave(2)
    assert world.state(T0).isr == (1,)
    world.leave(1)
    assert elect(world, ElectionType.UNCLEAN, T0, T1) == {
        T0: Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        T1: Errors.ELECTION_NOT_NEEDED,
    }
    world.join(2)
    assert world.state(T0).leader == -1
    assert elect(world, ElectionType.UNCLEAN) == {T0: Errors.NONE}
    state = world.state(T0)
    assert (state.leader, state.isr, state.recovery_state) == (2, (2,), LeaderRecoveryState.RECOVERING)


def test_the_old_tools_znode_is_heeded_and_deleted(world):
    for _ in range(2):
        stray(world)
        rows = [{"topic": "t", "partition": 0}, {"topic": "gone", "partition": 3}]
        world.store.create(PREFERRED_ELECTION, dump({"version": 1, "partitions": rows}))
        world.run()
        assert world.state(T0).leader == 1
        assert world.cluster.preferred_election_request() is None


def test_an_old_wish_that_nobody_can_read_is_deleted(world):
    world.store.create(PREFERRED_ELECTION, b"by hand")
    world.run()
    assert world.store.exists(PREFERRED_ELECTION) is None


def test_a_new_controller_heeds_old_wishes_that_came_before_it(world):
    stray(world)
    world.depose()
    rows = [{"topic": "t", "partition": 0}]
    world.store.create(PREFERRED_ELECTION, dump({"version": 1, "partitions": rows}))
    world.elect()
    assert world.state(T0).leader == 1


def make_offline(world: TermWorld) -> None:
    """Broker 2 is back, but only 1 was in sync when it died."""
    world.leave(2)
    world.leave(1)
    world.join(2)
    assert world.state(T0).leader == -1


def test_a_topic_whose_configs_are_spoilt_stays_offline_alone(world):
    world.create("u", {0: (1, 3)})
    world.term.settings = replace(world.term.settings, unclean_leader_election_enable=True)
    world.store.set("/config/topics/t", b"damaged{")
    make_offline(world)
    assert world.state(T0).leader == -1
    assert world.state(TopicPartition("u", 0)).leader == 3
    world.elect()
    assert world.state(TopicPartition("u", 0)).leader == 3


def test_a_topic_that_comes_to_allow_unclean_elections_has_them_at_once(world):
    make_offline(world)
    world.cluster.set_entity_config("topics", "t", {"unclean.leader.election.enable": "true"})
    world.term.on_unclean_enabled("t")
    assert world.state(T0).leader == 2


def test_a_cluster_that_comes_to_allow_unclean_elections_has_them_at_once(world):
    make_offline(world)
    world.term.settings = replace(world.term.settings, unclean_leader_election_enable=True)
    world.term.on_unclean_enabled(None)
    assert world.state(T0).leader == 2


def test_another_topics_config_brings_no_unclean_election(world):
    make_offline(world)
    world.term.on_unclean_enabled("t")
    assert world.state(T0).leader == -1


def test_a_preferred_leader_back_in_sync_leads_again_soon(world):
    world.leave(1)
    world.join(1)
    world.alter_isr(T0, (2, 1))
    assert world.state(T0).leader == 2
    world.events.run_later("rejoined")
    assert world.state(T0).leader == 1
    assert world.brokers.leader_and_isr(2, T0).leader == 1


def test_a_follower_back_in_sync_moves_no_leader(world):
    world.leave(2)
    world.join(2)
    before = world.state(T0)
    world.alter_isr(T0, (1, 2))
    world.events.run_later("rejoined")
    assert world.state(T0).leader_epoch == before.leader_epoch
