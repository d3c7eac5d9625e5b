"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of dynamic members, through the coordinator on manual time."""

from __future__ import annotations

import pytest

from broker.coordinator.group import describe
from broker.coordinator.group.describe import MemberDescription
from broker.coordinator.group.messages import JoinResult, MemberIdentity
from broker.protocol.errors import Errors
from broker.utils.timer import TICK_MS
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import RANGE, REBALANCE_MS, SESSION_MS, Harness

DELAY_MS = 3_000


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_first_member_waits_the_initial_delay_and_leads_generation_one(h):
    answers = h.join()
    h.advance(DELAY_MS - 1)
    assert answers.waiting
    assert h.state() == "PreparingRebalance"
    h.advance(1)
    result = answers.result
    assert (result.error, result.generation_id, result.leader_id) == (Errors.NONE, 1, result.member_id)
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in result.members] == [(result.member_id, b"range-metadata")]
    assert h.state() == "CompletingRebalance"


def test_each_new_member_extends_the_initial_delay_up_to_the_rebalance_timeout(h):
    first = h.join(rebalance_ms=7_000)
    h.advance(2_000)
    second = h.join(rebalance_ms=7_000)
    h.advance(2_000)  # 4 s: past one delay, extended to 6 s by the second member
    assert first.waiting
    third = h.join(rebalance_ms=7_000)
    h.advance(2_500)  # 6.5 s: extended again, but only to the rebalance time-out
    assert second.waiting
    h.advance(500)
    assert {a.result.generation_id for a in (first, second, third)} == {1}


def test_without_an_initial_delay_the_first_member_is_answered_at_once():
    h = Harness(group_initial_rebalance_delay_ms=0)
    assert h.join().result.generation_id == 1


def test_only_the_leader_learns_the_members(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    results = [answers.result for answers in waiting]
    assert sorted(len(result.members) for result in results) == [0, 2]
    assert {result.leader_id for result in results} == {results[0].member_id}


def test_member_id_is_the_clients_name_and_a_random_part(h):
    h.join(client_id="billing")
    h.advance(DELAY_MS)
    (member,) = h.coordinator.describe(h.GROUP).members
    assert member.member_id.startswith("billing-")
    assert len(member.member_id) == len("billing-") + 36


def test_dynamic_member_without_an_id_is_given_one_to_come_back_with(h):
    refused = h.join(require_known=True).result
    assert refused.error is Errors.MEMBER_ID_REQUIRED
    assert h.state() == "Empty"
    answers = h.join(refused.member_id, require_known=True)
    h.advance(DELAY_MS)
    assert answers.result.member_id == refused.member_id


def test_pending_member_that_does_not_come_back_stops_holding_up_the_rebalance(h):
    (leader,) = h.stable_group()
    h.join(require_known=True, session_ms=6_000)
    again = h.join(leader.member_id)
    assert again.waiting  # the pending member may still come
    h.advance(6_000)
    assert again.result.generation_id == 2


def test_pending_member_may_leave(h):
    pending = h.join(require_known=True).result.member_id
    assert h.leave(pending) == [Errors.NONE]
    assert h.join(pending).error is Errors.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_refused(h, session_ms):
    assert h.join(session_ms=session_ms).error is Errors.INVALID_SESSION_TIMEOUT


def test_unknown_member_of_an_unknown_group_is_refused_and_makes_no_group(h):
    assert h.join("ghost").error is Errors.UNKNOWN_MEMBER_ID
    assert h.coordinator.list_groups((), ()) == (Errors.NONE, [])


def test_empty_and_overlong_group_ids_are_refused(h):
    assert h.join(group="").error is Errors.INVALID_GROUP_ID
    assert h.join(group="ä" * 20_000).error is Errors.INVALID_GROUP_ID


def test_protocol_name_that_cannot_be_stored_is_refused(h):
    assert h.join(protocols=(("x" * 40_000, b""),)).error is Errors.INVALID_REQUEST


def test_member_without_a_common_protocol_is_refused(h):
    h.stable_group()
    assert h.join(protocols=(("odd", b""),)).error is Errors.INCONSISTENT_GROUP_PROTOCOL
    assert h.join(protocol_type="connect").error is Errors.INCONSISTENT_GROUP_PROTOCOL
    assert h.join(group="g2", protocols=()).error is Errors.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_refuses_new_members_but_not_its_own():
    h = Harness(group_max_size=2)
    leader, follower = h.stable_group(2)
    assert h.join().error is Errors.GROUP_MAX_SIZE_REACHED
    again = h.join(leader.member_id)
    assert h.join(follower.member_id).error is Errors.NONE
    assert again.error is Errors.NONE


def test_full_group_refuses_a_pending_member_too():
    h = Harness(group_max_size=1)
    pending = h.join(require_known=True).result.member_id
    h.stable_group()
    assert h.join(pending).error is Errors.GROUP_MAX_SIZE_REACHED


def test_joining_member_makes_the_others_rejoin_and_starts_a_new_generation(h):
    (leader,) = h.stable_group()
    newcomer = h.join()
    assert h.heartbeat(leader) is Errors.REBALANCE_IN_PROGRESS
    again = h.join(leader.member_id)
    assert again.result.generation_id == newcomer.result.generation_id == 2
    assert again.result.leader_id == leader.member_id


def test_member_that_does_not_rejoin_is_dropped_at_the_rebalance_timeout(h):
    leader, follower = h.stable_group(2)
    again = h.join(leader.member_id)
    for _ in range(REBALANCE_MS // 5_000):
        assert again.waiting
        assert h.heartbeat(follower) is Errors.REBALANCE_IN_PROGRESS
        h.advance(5_000)
    assert [m.member_id for m in again.result.members] == [leader.member_id]
    assert h.heartbeat(follower) is Errors.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_rejoin_is_succeeded_by_a_member_that_did(h):
    leader, follower = h.stable_group(2)
    newcomer = h.join()
    again = h.join(follower.member_id)
    h.advance(SESSION_MS)
    assert again.result.leader_id == follower.member_id
    assert leader.member_id not in {m.member_id for m in again.result.members}
    assert newcomer.result.generation_id == 2


def test_follower_that_rejoins_unchanged_gets_the_current_generation(h):
    _, follower = h.stable_group(2)
    result = h.join(follower.member_id).result
    assert (result.generation_id, result.members, h.state()) == (1, (), "Stable")


def test_follower_with_new_metadata_sets_off_a_rebalance(h):
    _, follower = h.stable_group(2)
    assert h.join(follower.member_id, protocols=(("range", b"other"),)).waiting
    assert h.state() == "PreparingRebalance"


def test_leader_that_rejoins_unchanged_sets_off_a_rebalance(h):
    leader, _ = h.stable_group(2)
    assert h.join(leader.member_id).waiting
    assert h.state() == "PreparingRebalance"


def test_lost_join_answer_is_given_again_while_assignments_are_awaited(h):
    answers = h.join()
    h.advance(DELAY_MS)
    first = answers.result
    assert h.join(first.member_id).result == first


def test_second_join_of_a_waiting_member_answers_the_first(h):
    leader, _ = h.stable_group(2)
    first = h.join(leader.member_id)
    second = h.join(leader.member_id)
    assert first.error is Errors.REBALANCE_IN_PROGRESS
    assert second.waiting


def test_new_member_whose_client_gave_up_is_dropped_after_five_minutes(h):
    leader, _ = h.stable_group(2, rebalance_ms=600_000)
    abandoned = h.join(rebalance_ms=600_000)
    for _ in range(60):
        h.heartbeat(leader)
        h.advance(5_000)
    assert abandoned.error is Errors.UNKNOWN_MEMBER_ID


def test_members_wait_for_the_leaders_assignment(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    leader, follower = (answers.result for answers in waiting)
    early = h.sync(follower)
    assert early.waiting
    done = h.sync(leader, {leader.member_id: b"one", follower.member_id: b"two", "stranger": b"three"})
    assert (done.result.assignment, early.result.assignment) == (b"one", b"two")
    assert (early.result.protocol_type, early.result.protocol_name) == ("consumer", "range")
    assert h.state() == "Stable"


def test_member_that_the_leader_forgot_gets_an_empty_assignment(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    leader, follower = (answers.result for answers in waiting)
    early = h.sync(follower)
    h.sync(leader, {leader.member_id: b"one"})
    assert (early.error, early.result.assignment) == (Errors.NONE, b"")


def test_late_sync_in_a_stable_group_gets_the_assignment_at_once(h):
    _, follower = h.stable_group(2)
    assert h.sync(follower).result.assignment == follower.member_id.encode()


def test_second_sync_of_a_waiting_member_answers_the_first(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    leader, follower = (answers.result for answers in waiting)
    first, second = h.sync(follower), h.sync(follower)
    assert first.error is Errors.REBALANCE_IN_PROGRESS
    h.sync(leader, {follower.member_id: b"two"})
    assert second.result.assignment == b"two"


def test_sync_is_refused_to_strangers_old_generations_and_other_protocols(h):
    (member,) = h.stable_group()
    assert h.sync(JoinResult("ghost", generation_id=1)).error is Errors.UNKNOWN_MEMBER_ID
    assert h.sync(member, group="nowhere").error is Errors.UNKNOWN_MEMBER_ID
    assert h.sync(member, generation=0).error is Errors.ILLEGAL_GENERATION
    assert h.sync(member, protocol_type="connect").error is Errors.INCONSISTENT_GROUP_PROTOCOL
    assert h.sync(member, protocol_name="odd").error is Errors.INCONSISTENT_GROUP_PROTOCOL
    assert h.sync(member, protocol_type=None, protocol_name=None).error is Errors.NONE


def test_sync_during_a_rebalance_sends_the_member_back_to_join(h):
    (member,) = h.stable_group()
    h.join()
    assert h.sync(member).error is Errors.REBALANCE_IN_PROGRESS


def test_rebalance_answers_members_that_wait_for_an_assignment(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    _, follower = (answers.result for answers in waiting)
    synced = h.sync(follower)
    h.join()
    assert synced.error is Errors.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_dropped_after_the_rebalance_timeout(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    leader, follower = (answers.result for answers in waiting)
    synced = h.sync(leader, {})
    assert synced.error is Errors.NONE
    for _ in range(REBALANCE_MS // 5_000):
        assert h.heartbeat(leader) is Errors.NONE
        assert h.heartbeat(follower) is Errors.NONE
        h.advance(5_000)
    assert h.heartbeat(leader) is Errors.REBALANCE_IN_PROGRESS
    assert h.heartbeat(follower) is Errors.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_their_absence_removes_it(h):
    (member,) = h.stable_group()
    for _ in range(5):
        h.advance(SESSION_MS - TICK_MS)
        assert h.heartbeat(member) is Errors.NONE
    h.advance(SESSION_MS)
    assert h.heartbeat(member) is Errors.UNKNOWN_MEMBER_ID
    assert h.state() == "Empty"


def test_heartbeats_cost_no_timer_entries(h):
    (member,) = h.stable_group()
    before = h.timer.entries
    for _ in range(1_000):
        assert h.heartbeat(member) is Errors.NONE
    assert h.timer.entries == before


def test_one_timer_entry_serves_a_whole_group(h):
    h.stable_group(20)
    assert h.timer.waiting == 1


def test_heartbeat_is_refused_to_strangers_and_old_generations(h):
    (member,) = h.stable_group()
    assert h.heartbeat(JoinResult("ghost", generation_id=1)) is Errors.UNKNOWN_MEMBER_ID
    assert h.heartbeat(JoinResult(member.member_id, generation_id=0)) is Errors.ILLEGAL_GENERATION
    assert h.heartbeat(member, group="nowhere") is Errors.UNKNOWN_MEMBER_ID
    assert h.heartbeat(member, group="") is Errors.INVALID_GROUP_ID


def test_last_member_that_leaves_empties_the_group_and_the_log_says_so(h):
    (member,) = h.stable_group()
    assert h.leave(member.member_id) == [Errors.NONE]
    assert h.state() == "Empty"
    h.restart()
    assert h.state() == "Empty"
    assert h.heartbeat(member) is Errors.UNKNOWN_MEMBER_ID


def test_members_leave_together_each_with_its_own_error(h):
    leader, follower = h.stable_group(2)
    errors = h.leave(MemberIdentity("ghost"), MemberIdentity(leader.member_id), MemberIdentity("", "no-such"))
    assert errors == [Errors.UNKNOWN_MEMBER_ID, Errors.NONE, Errors.UNKNOWN_MEMBER_ID]
    assert h.heartbeat(follower) is Errors.REBALANCE_IN_PROGRESS
    assert h.leave("anybody", group="nowhere") == [Errors.UNKNOWN_MEMBER_ID]


def test_member_that_leaves_while_it_waits_is_answered(h):
    leader, follower = h.stable_group(2)
    waiting = h.join(leader.member_id)
    h.leave(leader.member_id)
    assert waiting.error is Errors.UNKNOWN_MEMBER_ID
    again = h.join(follower.member_id)
    assert again.result.leader_id == follower.member_id


def test_member_that_leaves_while_it_awaits_its_assignment_is_answered(h):
    waiting = [h.join(), h.join()]
    h.advance(2 * DELAY_MS)
    _, follower = (answers.result for answers in waiting)
    synced = h.sync(follower)
    h.leave(follower.member_id)
    assert synced.error is Errors.UNKNOWN_MEMBER_ID


def test_group_describes_itself_with_metadata_only_when_stable(h):
    answers = h.join()
    assert [m.metadata for m in h.coordinator.describe(h.GROUP).members] == [b""]
    h.advance(DELAY_MS)
    h.sync(answers.result, {answers.result.member_id: b"part"})
    described = h.coordinator.describe(h.GROUP)
    assert (described.state, described.protocol, described.protocol_type) == ("Stable", "range", "consumer")
    (member,) = described.members
    assert (member.metadata, member.assignment, member.client_host) == (RANGE[0][1], b"part", "/127.0.0.1")


def test_the_groups_lock_is_not_held_while_its_members_are_described(h, monkeypatch):
    """That takes most of the time: of 10,000 members it is 5 of 6 ms."""
    h.stable_group(2)
    (cell,) = h.coordinator._registry.cells()

    def described(*fields: object) -> MemberDescription:
        assert not cell._lock.locked()
        return MemberDescription(*fields)

    monkeypatch.setattr(describe, "MemberDescription", described)
    assert len(h.coordinator.describe(h.GROUP).members) == 2


def test_unknown_group_is_described_as_dead(h):
    described = h.coordinator.describe("nowhere")
    assert (described.error, described.state) == (Errors.NONE, "Dead")


def test_groups_are_listed_by_state_and_type_without_regard_to_case(h):
    h.stable_group(group="live")
    h.commit({TopicPartition("t", 0): 1}, group="idle")

    def listed(states, types=()):
        return sorted(o.group_id for o in h.coordinator.list_groups(states, types)[1])

    assert listed(()) == ["idle", "live"]
    assert listed(["stable"]) == ["live"]
    assert listed(["EMPTY", "Dead"]) == ["idle"]
    assert listed((), ["Classic"]) == ["idle", "live"]
    assert listed((), ["consumer"]) == []
