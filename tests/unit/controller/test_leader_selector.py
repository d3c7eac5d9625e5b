"""Elections keep Kafka's rules: only the in-sync lead, unless the topic allows otherwise, and no ISR
is emptied.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.rules.leader_selector import (
    elect_controlled_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassign,
    imbalanced,
    initial_state,
    raise_epoch,
    remove_from_isr,
)
from broker.protocol.epochs import NO_LEADER
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState

EPOCH = 9


def state(leader, isr, leader_epoch=4):
    return LeaderAndIsr(leader, leader_epoch, tuple(isr), 3, partition_epoch=7)


def test_a_new_partition_is_led_by_its_first_live_replica():
    assert initial_state((3, 1, 2), {1, 2}, EPOCH) == LeaderAndIsr(1, 0, (1, 2), EPOCH)
    assert initial_state((3,), {1, 2}, EPOCH) is None


def test_the_first_live_replica_in_sync_takes_over_in_assignment_order():
    elected = elect_offline(state(1, (3, 2, 1)), (1, 2, 3), {2, 3}, EPOCH, unclean_allowed=False)
    assert elected.leader == 2
    assert elected.isr == (3, 2)
    assert (elected.leader_epoch, elected.controller_epoch, elected.partition_epoch) == (5, EPOCH, 7)


def test_follower_out_of_isr_cannot_become_leader():
    assert elect_offline(state(1, (1,)), (1, 2, 3), {2, 3}, EPOCH, unclean_allowed=False) is None


def test_an_unclean_leader_is_alone_in_the_isr_and_recovering():
    elected = elect_offline(state(1, (1,)), (1, 2, 3), {2, 3}, EPOCH, unclean_allowed=True)
    assert (elected.leader, elected.isr, elected.recovery_state) == (2, (2,), LeaderRecoveryState.RECOVERING)


def test_an_election_is_clean_where_it_can_be_though_unclean_ones_are_allowed():
    elected = elect_offline(state(1, (1, 3)), (1, 2, 3), {2, 3}, EPOCH, unclean_allowed=True)
    assert (elected.leader, elected.recovery_state) == (3, LeaderRecoveryState.RECOVERED)


def test_nobody_is_elected_among_the_dead():
    assert elect_offline(state(1, (1, 2)), (1, 2), set(), EPOCH, unclean_allowed=True) is None


def test_the_preferred_leader_must_be_alive_and_in_sync():
    assert elect_preferred(state(2, (2, 1)), (1, 2), {1, 2}, EPOCH).leader == 1
    assert elect_preferred(state(2, (2, 1)), (1, 2), {1, 2}, EPOCH).isr == (2, 1)
    assert elect_preferred(state(2, (2,)), (1, 2), {1, 2}, EPOCH) is None
    assert elect_preferred(state(2, (2, 1)), (1, 2), {2}, EPOCH) is None
    assert elect_preferred(state(1, (2, 1)), (1, 2), {1, 2}, EPOCH) is None


def test_a_stopping_broker_leaves_leadership_and_isr():
    elected = elect_controlled_shutdown(state(1, (1, 2, 3)), (1, 2, 3), {1, 2, 3}, {1}, EPOCH)
    assert (elected.leader, elected.isr) == (2, (2, 3))
    assert elect_controlled_shutdown(state(1, (1,)), (1, 2), {1, 2}, {1}, EPOCH) is None
    assert elect_controlled_shutdown(state(1, (1, 2)), (1, 2), {1, 2}, {1, 2}, EPOCH) is None


def test_offline_replicas_leave_the_isr_with_a_new_leader_epoch():
    shrunk = remove_from_isr(state(1, (1, 2, 3)), {3}, {1, 2}, EPOCH)
    assert (shrunk.leader, shrunk.isr, shrunk.leader_epoch) == (1, (1, 2), 5)


def test_a_dead_leader_loses_the_leadership():
    assert remove_from_isr(state(1, (1, 2)), {1}, {2}, EPOCH).leader == NO_LEADER
    assert remove_from_isr(state(1, (1, 2)), {1}, {2}, EPOCH).isr == (2,)


def test_the_last_replica_stays_in_the_isr():
    assert remove_from_isr(state(1, (1,)), {1}, set(), EPOCH).isr == (1,)
    assert remove_from_isr(state(NO_LEADER, (1,)), {1}, set(), EPOCH) is None


def test_an_isr_that_died_together_stays_whole():
    assert remove_from_isr(state(1, (1, 2)), {1, 2}, {3}, EPOCH).isr == (1, 2)
    # One by one, the other being dead already: as much.
    assert remove_from_isr(state(1, (1, 2)), {1}, {3}, EPOCH).isr == (1, 2)


def test_nothing_is_written_for_a_replica_that_was_not_in_sync():
    assert remove_from_isr(state(1, (1, 2)), {3}, {1, 2}, EPOCH) is None


def test_a_broker_is_imbalanced_when_more_than_its_share_is_led_by_others():
    led_by = [(1, 1)] * 9 + [(1, 2)] + [(2, 2)] * 8 + [(2, 1)] * 2
    assert imbalanced(led_by, 10) == [18, 19]
    assert imbalanced(led_by, 9) == [9, 18, 19]
    assert imbalanced([], 10) == []


brokers = st.integers(1, 5)
replicas = st.lists(brokers, unique=True, min_size=1, max_size=4)
live = st.sets(brokers)


@st.composite
def partitions(draw):
    assigned = draw(replicas)
    isr = draw(st.lists(st.sampled_from(assigned), unique=True, min_size=1))
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    return assigned, state(leader, isr, draw(st.integers(0, 100)))


@given(partitions(), live)
def test_a_clean_election_never_loses_a_committed_record(partition, alive):
    assigned, before = partition
    elected = elect_offline(before, assigned, alive, EPOCH, unclean_allowed=False)
    if elected is None:
        assert not set(before.isr) & alive
        return
    assert elected.leader in alive
    assert elected.leader in before.isr
    assert elected.leader in elected.isr
    assert set(elected.isr) <= set(before.isr)
    assert elected.leader_epoch == before.leader_epoch + 1


@given(partitions(), live, live)
def test_removal_never_empties_an_isr_and_never_adds_to_it(partition, removed, alive):
    _, before = partition
    after = remove_from_isr(before, removed, alive - removed, EPOCH)
    if after is not None:
        assert after.isr
        assert set(after.isr) <= set(before.isr)
        assert after.leader not in removed
        assert after.leader_epoch == before.leader_epoch + 1
        assert after.isr == before.isr or set(after.isr) & (alive - removed)


@given(partitions(), live, st.booleans())
def test_every_elected_leader_is_in_its_own_isr(partition, alive, unclean):
    assigned, before = partition
    for elected in (
        elect_offline(before, assigned, alive, EPOCH, unclean_allowed=unclean),
        elect_preferred(before, assigned, alive, EPOCH),
        elect_controlled_shutdown(before, assigned, alive, {min(alive, default=1)}, EPOCH),
        initial_state(assigned, alive, EPOCH),
    ):
        if elected is not None:
            assert elected.leader in elected.isr
            assert elected.leader in alive
            assert elected.controller_epoch == EPOCH


@pytest.mark.parametrize("percentage", [0, 10, 50, 100])
@given(st.lists(st.tuples(brokers, brokers), max_size=40))
def test_only_strayed_partitions_are_ever_named_imbalanced(percentage, led_by):
    positions = imbalanced(led_by, percentage)
    assert all(led_by[position][0] != led_by[position][1] for position in positions)
    if percentage == 100:
        assert positions == []


def test_a_reassignment_leaves_the_leader_who_stays_and_else_elects_the_first_in_sync_of_the_target():
    stays = elect_reassign(state(2, (1, 2, 3)), (3, 2), {1, 2, 3}, EPOCH)
    assert (stays.leader, stays.isr, stays.leader_epoch) == (2, (1, 2, 3), 5)
    assert elect_reassign(state(1, (1, 2, 3)), (3, 2), {1, 2, 3}, EPOCH).leader == 3
    assert elect_reassign(state(1, (1, 2, 3)), (3, 2), {1, 2}, EPOCH).leader == 2
    assert elect_reassign(state(2, (1, 2, 3)), (3, 2), {1, 3}, EPOCH).leader == 3, "2 is dead"
    assert elect_reassign(state(1, (1,)), (3, 2), {1, 2, 3}, EPOCH) is None


def test_a_raised_epoch_keeps_leader_and_isr_but_for_who_is_no_replica():
    raised = raise_epoch(state(1, (1, 2)), (3, 1, 2), EPOCH)
    assert raised == LeaderAndIsr(1, 5, (1, 2), EPOCH, partition_epoch=7)
    assert raise_epoch(state(1, (1, 9)), (1, 2), EPOCH).isr == (1,)
    assert raise_epoch(state(-1, (9,)), (1, 2), EPOCH).isr == (9,), "an ISR is never emptied"
