"""A leader's wish to change its ISR is judged by Kafka's rules, in Kafka's order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.rules.isr_change import Proposal, answer_of, judge
from broker.protocol.errors import Errors
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState

STATE = LeaderAndIsr(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=3, partition_epoch=8)
EPOCHS = {1: 101, 2: 102, 3: 103}
RECOVERING = LeaderRecoveryState.RECOVERING


def proposal(isr, **changes):
    members = isr if isinstance(isr, dict) else dict.fromkeys(isr, -1)
    return replace(Proposal(1, 5, members, 8), **changes)


def verdict(wish, state=STATE, live=(1, 2, 3), knows_ineligible=True):
    return judge(wish, state, live, EPOCHS, knows_ineligible=knows_ineligible)


def test_an_isr_shrinks_and_grows_without_a_new_leader_epoch():
    shrunk = verdict(proposal([1]))
    assert shrunk.error is Errors.NONE
    assert shrunk.new_state == replace(STATE, isr=(1,))
    assert verdict(proposal([1, 2, 3])).new_state.isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (proposal([1], leader_epoch=6), Errors.NOT_CONTROLLER),
        (proposal([1], partition_epoch=9), Errors.NOT_CONTROLLER),
        (proposal([1], leader_epoch=4), Errors.FENCED_LEADER_EPOCH),
        (proposal([1], leader_epoch=4, partition_epoch=7), Errors.FENCED_LEADER_EPOCH),
        (proposal([1], partition_epoch=7), Errors.INVALID_UPDATE_VERSION),
        (proposal([2], broker_id=2), Errors.INVALID_REQUEST),
        (proposal([2]), Errors.INVALID_REQUEST),
        (proposal([]), Errors.INVALID_REQUEST),
        (proposal([1], recovery_state=RECOVERING), Errors.INVALID_REQUEST),
        (proposal([1, 4]), Errors.INELIGIBLE_REPLICA),
        (proposal({1: 101, 3: 7}), Errors.INELIGIBLE_REPLICA),
    ],
)
def test_refusals_have_kafkas_codes(wish, error):
    judged = verdict(wish)
    assert judged.error is error
    assert judged.new_state is None


def test_a_repeated_wish_is_granted_before_its_old_partition_epoch_is_seen():
    judged = verdict(proposal([2, 1], partition_epoch=7))
    assert judged.error is Errors.NONE
    assert judged.new_state is None


def test_members_may_be_given_with_their_epochs():
    assert verdict(proposal({1: 101, 2: 102, 3: 103})).error is Errors.NONE


def test_a_dead_member_is_refused_in_the_words_of_the_version():
    assert verdict(proposal([1, 2, 3]), live=(1, 2)).error is Errors.INELIGIBLE_REPLICA
    wish = proposal([1, 2, 3])
    assert verdict(wish, live=(1, 2), knows_ineligible=False).error is Errors.OPERATION_NOT_ATTEMPTED


def test_a_recovering_leader_recovers_before_its_isr_grows():
    recovering = replace(STATE, isr=(1,), recovery_state=RECOVERING)
    assert verdict(proposal([1]), recovering).new_state.recovery_state is LeaderRecoveryState.RECOVERED
    assert verdict(proposal([1], recovery_state=RECOVERING), recovering).new_state is None
    assert verdict(proposal([1, 2], recovery_state=RECOVERING), recovering).error is Errors.INVALID_REQUEST
    assert verdict(proposal([1, 2]), recovering).new_state.isr == (1, 2)


def test_a_partition_without_a_state_is_unknown():
    assert verdict(proposal([1]), None).error is Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refusal_carries_no_state():
    answer = answer_of(3, Errors.FENCED_LEADER_EPOCH, STATE)
    assert (answer.partition_index, answer.isr, answer.leader_epoch) == (3, (), 0)


@given(
    st.lists(st.integers(1, 5), unique=True),
    st.integers(1, 3),
    st.integers(3, 7),
    st.integers(6, 10),
    st.sets(st.integers(1, 5)),
    st.sampled_from(LeaderRecoveryState),
)
def test_whatever_is_granted_keeps_leader_and_epochs_and_has_only_live_members(
    isr, broker_id, leader_epoch, partition_epoch, live, recovery
):
    wish = Proposal(broker_id, leader_epoch, dict.fromkeys(isr, -1), partition_epoch, recovery)
    judged = verdict(wish, live=live)
    assert (judged.new_state is None) or judged.error is Errors.NONE
    if judged.new_state is not None:
        new = judged.new_state
        assert (new.leader, new.leader_epoch, new.partition_epoch) == (1, 5, 8)
        assert new.leader in new.isr
        assert set(new.isr) <= live
        assert (broker_id, leader_epoch, partition_epoch) == (1, 5, 8)
