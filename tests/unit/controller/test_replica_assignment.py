"""What a reassignment is can be told from the topic's znode alone, and what alone has the records is not dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.rules.replica_assignment import ReplicaAssignment, check_target, may_drop_unneeded
from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper.znodes import LeaderAndIsr

IDS = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(tuple)


def state(leader, *isr):
    return LeaderAndIsr(leader, 4, isr, 3, partition_epoch=7)


def test_a_move_holds_the_target_first_and_the_old_replicas_behind():
    move = ReplicaAssignment((1, 2, 3)).reassign_to((4, 2))
    assert move == ReplicaAssignment((4, 2, 1, 3), adding=(4,), removing=(1, 3))
    assert (move.origin, move.target) == ((2, 1, 3), (4, 2))


@given(origin=IDS, wishes=st.lists(IDS, min_size=1, max_size=4))
def test_origin_and_target_can_be_told_from_any_chain_of_moves(origin, wishes):
    move = ReplicaAssignment(origin)
    for wish in wishes:
        before = move
        move = move.reassign_to(wish)
        assert move.target == wish
        assert set(move.origin) == set(origin)
        assert set(before.replicas) <= set(move.replicas), "nobody who may hold a replica is forgotten"
        assert set(move.unneeded) == set(before.replicas) - set(origin) - set(wish)
        settled = move.without_unneeded()
        assert (settled.target, set(settled.origin), settled.unneeded) == (wish, set(origin), ())
    back = move.cancelled()
    assert set(back.without_unneeded().replicas) == set(origin)
    assert not back.without_unneeded().is_being_reassigned


@given(IDS, IDS)
def test_a_move_is_complete_when_the_whole_target_is_in_sync(origin, target):
    move = ReplicaAssignment(origin).reassign_to(target)
    assert move.is_complete(state(origin[0], *move.replicas))
    for missing in target:
        partial = state(origin[0], *(b for b in move.replicas if b != missing))
        assert move.is_complete(partial) is not move.is_being_reassigned


@pytest.mark.parametrize("target", [(), (1, 1), (1, -2)])
def test_what_cannot_be_a_list_of_replicas_is_refused(target):
    with pytest.raises(KafkaError) as refused:
        check_target(target)
    assert refused.value.error_code is Errors.INVALID_REPLICA_ASSIGNMENT


def test_replicas_are_dropped_only_where_somebody_who_stays_has_all_that_is_committed():
    move = ReplicaAssignment((1, 2)).reassign_to((3, 4)).cancelled()
    assert move.unneeded == (3, 4)
    assert may_drop_unneeded(move, state(1, 1, 2, 3), {1, 2, 3})
    assert may_drop_unneeded(move, state(3, 3, 1), {1, 3})
    assert not may_drop_unneeded(move, state(3, 3), {1, 3})
    assert not may_drop_unneeded(move, state(3, 3, 1), {3}), "1 is in sync, but only 3 could lead"
    assert may_drop_unneeded(move, state(-1, 3, 1), set()), "neither can lead now; 1 will"
    assert not may_drop_unneeded(move, state(-1, 3), set())
    assert may_drop_unneeded(move, None, set())
