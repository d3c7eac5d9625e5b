"""Static members (KIP-345, KIP-814): a restarted consumer takes its place, whoever was there before is fenced."""

from __future__ import annotations

import pytest

from broker.coordinator.group.messages import MemberIdentity
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import REBALANCE_MS, SESSION_MS, Harness

TP = TopicPartition("t", 0)


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_static_member_needs_no_second_join_for_its_id(h):
    answers = h.join(instance="i1", require_known=False)
    h.advance(3_000)
    assert answers.result.member_id.startswith("i1-")
    assert answers.result.members[0].group_instance_id == "i1"


def test_restarted_static_member_keeps_its_assignment_without_a_rebalance(h):
    (old,) = h.stable_group(instance="i1")
    result = h.join(instance="i1").result
    assert (result.error, result.generation_id, h.state()) == (Errors.NONE, 1, "Stable")
    assert result.member_id != old.member_id
    assert h.sync(result, instance="i1").result.assignment == old.member_id.encode()
    h.restart()
    assert h.heartbeat(result, instance="i1") is Errors.NONE


def test_before_version_9_a_restarted_leader_is_told_that_its_former_self_leads(h):
    (old,) = h.stable_group(instance="i1")
    result = h.join(instance="i1").result
    assert (result.leader_id, result.members, result.skip_assignment) == (old.member_id, (), False)


def test_from_version_9_a_restarted_leader_leads_but_skips_the_assignment(h):
    h.stable_group(instance="i1")
    result = h.join(instance="i1", skip=True).result
    assert (result.leader_id, result.skip_assignment) == (result.member_id, True)
    assert [m.member_id for m in result.members] == [result.member_id]


def test_restarted_static_follower_skips_nothing(h):
    leader = h.join(instance="i1")
    follower = h.join(instance="i2")
    h.advance(6_000)
    h.sync(leader.result, {}, instance="i1")
    h.sync(follower.result, instance="i2")
    again = h.join(instance="i2", skip=True).result
    assert (again.leader_id, again.skip_assignment, again.members) == (leader.result.member_id, False, ())


def test_former_holder_of_the_instance_id_is_fenced_everywhere(h):
    (old,) = h.stable_group(instance="i1")
    h.join(instance="i1")
    assert h.heartbeat(old, instance="i1") is Errors.FENCED_INSTANCE_ID
    assert h.sync(old, instance="i1").error is Errors.FENCED_INSTANCE_ID
    assert h.join(old.member_id, instance="i1").error is Errors.FENCED_INSTANCE_ID
    assert h.leave(MemberIdentity(old.member_id, "i1")) == [Errors.FENCED_INSTANCE_ID]
    assert h.commit({TP: 1}, old.member_id, 1, instance="i1").result == {TP: Errors.FENCED_INSTANCE_ID}
    assert h.heartbeat(old) is Errors.UNKNOWN_MEMBER_ID


def test_former_holder_that_waits_is_fenced_at_once(h):
    first = h.join(instance="i1")
    second = h.join(instance="i1")
    assert first.error is Errors.FENCED_INSTANCE_ID
    h.advance(6_000)
    assert second.result.generation_id == 1


def test_static_member_that_restarts_while_assignments_are_awaited_sets_off_a_rebalance(h):
    leader, follower = h.join(instance="i1"), h.join(instance="i2")
    h.advance(6_000)
    synced = h.sync(follower.result, instance="i2")
    again = h.join(instance="i2")
    assert synced.error is Errors.FENCED_INSTANCE_ID
    assert again.waiting
    assert h.sync(leader.result, {}, instance="i1").error is Errors.REBALANCE_IN_PROGRESS


def test_static_member_that_comes_back_with_another_protocol_sets_off_a_rebalance(h):
    h.stable_group(instance="i1", protocols=(("range", b""), ("sticky", b"")))
    again = h.join(instance="i1", protocols=(("sticky", b""),))
    assert again.waiting or again.result.generation_id == 2
    h.advance(REBALANCE_MS)
    assert again.result.protocol_name == "sticky"


def test_restart_that_cannot_be_stored_leaves_the_former_member_in_place(h):
    (old,) = h.stable_group(instance="i1")
    h.appender.error = Errors.NOT_ENOUGH_REPLICAS
    refused = h.join(instance="i1").result
    assert (refused.error, refused.member_id) == (Errors.COORDINATOR_NOT_AVAILABLE, "")
    h.appender.error = Errors.NONE
    assert h.heartbeat(old, instance="i1") is Errors.NONE


def test_rebalance_between_storing_and_answer_answers_the_restarted_member_once(h):
    (_,) = h.stable_group(instance="i1")
    h.appender.hold = True
    again = h.join(instance="i1")
    assert again.waiting
    newcomer = h.join(instance="i2")
    h.appender.release()
    assert again.result.generation_id == newcomer.result.generation_id == 2


def test_static_member_that_does_not_rejoin_keeps_its_place_until_its_session_ends(h):
    (static,) = h.stable_group(instance="i1", session_ms=120_000, rebalance_ms=30_000)
    newcomer = h.join(rebalance_ms=30_000)
    h.advance(30_000)
    assert newcomer.result.generation_id == 2
    assert static.member_id in {m.member_id for m in newcomer.result.members}


def test_rebalance_that_no_static_member_answers_goes_on_until_one_does(h):
    (static,) = h.stable_group(instance="i1", session_ms=1_000_000, rebalance_ms=10_000)
    pending = h.join(require_known=True).result.member_id
    newcomer = h.join(pending)
    h.leave(pending)
    assert newcomer.error is Errors.UNKNOWN_MEMBER_ID
    h.advance(100_000)
    assert h.state() == "PreparingRebalance"
    again = h.join(static.member_id, instance="i1")
    assert again.result.generation_id == 2


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(1 << 31)])
def test_members_that_need_no_time_to_rejoin_do_not_keep_the_timer_busy(h, rebalance_ms):
    first, second = h.join(instance="i1"), h.join(instance="i2")
    h.advance(6_000)
    for answers, instance in ((second, "i2"), (first, "i1")):
        h.sync(answers.result, instance=instance)
    back = h.join(instance="i1", rebalance_ms=rebalance_ms).result
    h.leave(MemberIdentity(second.result.member_id, "i2"))
    assert h.state() == "PreparingRebalance", "it was not told yet, and its session goes on"
    for _ in range(3):
        rest_ms = h.timer.real.next_due_ms() - h.clock.monotonic_ms()
        assert rest_ms >= 1_000
        h.advance(rest_ms)
        assert h.heartbeat(back, instance="i1") is Errors.REBALANCE_IN_PROGRESS
    assert h.join(back.member_id, instance="i1", rebalance_ms=rebalance_ms).result.generation_id == 2


def test_administrator_removes_a_static_member_by_its_instance_id(h):
    (member,) = h.stable_group(instance="i1")
    assert h.leave(MemberIdentity("", "i1")) == [Errors.NONE]
    assert h.heartbeat(member) is Errors.UNKNOWN_MEMBER_ID
    assert h.leave(MemberIdentity("", "i1")) == [Errors.UNKNOWN_MEMBER_ID]


def test_instance_id_of_another_member_does_not_open_the_door(h):
    first, second = h.join(instance="i1"), h.join(instance="i2")
    h.advance(6_000)
    assert h.heartbeat(first.result, instance="i2") is Errors.FENCED_INSTANCE_ID
    assert h.heartbeat(second.result, instance="i3") is Errors.UNKNOWN_MEMBER_ID


def test_static_member_that_falls_silent_is_dropped_at_its_session_timeout(h):
    (member,) = h.stable_group(instance="i1")
    h.advance(SESSION_MS)
    assert h.heartbeat(member, instance="i1") is Errors.UNKNOWN_MEMBER_ID
