"""The ISR rule, the high watermark and truncation, as values; and a search for a committed record that is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.isr import IsrState, behind_ms, may_join, next_high_watermark, out_of_sync_replicas
from broker.cluster.replica import NEVER_MS, FollowerState
from broker.replication.truncation import NO_EPOCH, truncation_offset

LAG_MS = 1000
NOW_MS = 100_000


def follower(broker_id: int, end: int, caught_up_ms: int = NOW_MS) -> FollowerState:
    return FollowerState(broker_id, end, 0, caught_up_ms, caught_up_ms, end)


def mark(current, leader_end, isr, followers, min_isr=1, proposed=None, alive=lambda _: True):
    state = IsrState(frozenset(isr), None if proposed is None else frozenset(proposed))
    return next_high_watermark(
        current,
        leader_end,
        state,
        {f.broker_id: f for f in followers},
        min_isr=min_isr,
        now_ms=NOW_MS,
        max_lag_ms=LAG_MS,
        may_come=alive,
    )


def test_of_a_pending_change_only_what_holds_either_way_is_certain() -> None:
    three, two = frozenset({1, 2, 3}), frozenset({1, 2})
    assert IsrState(three).certain == three
    assert IsrState(three, two).certain == two, "a member is about to be dropped"
    assert IsrState(two, three).certain == two, "a member is about to join"


def test_mark_is_where_the_slowest_member_is() -> None:
    assert mark(0, 10, {1, 2, 3}, [follower(2, 7), follower(3, 9)]) == 7


def test_mark_never_goes_back() -> None:
    assert mark(8, 10, {1, 2}, [follower(2, 5)]) == 8


def test_mark_does_not_advance_below_min_isr() -> None:
    assert mark(3, 10, {1}, [follower(2, 3, NEVER_MS)], min_isr=2) == 3


def test_min_isr_above_the_replication_factor_counts_as_the_factor() -> None:
    assert mark(3, 10, {1}, [], min_isr=2) == 10


def test_member_about_to_join_is_waited_for() -> None:
    assert mark(3, 10, {1}, [follower(2, 4, NEVER_MS)], proposed={1, 2}) == 4


def test_member_about_to_leave_is_still_waited_for() -> None:
    assert mark(3, 10, {1, 2}, [follower(2, 4)], proposed={1}) == 4


def test_caught_up_follower_outside_the_isr_is_waited_for_while_its_broker_lives() -> None:
    outside = [follower(2, 6)]
    assert mark(3, 10, {1}, outside) == 6
    assert mark(3, 10, {1}, outside, alive=lambda _: False) == 10


def test_member_that_fetches_but_stays_behind_is_out_of_sync_after_the_lag_time() -> None:
    followers = {2: follower(2, 5, NOW_MS - LAG_MS - 1), 3: follower(3, 5, NOW_MS - LAG_MS)}
    assert out_of_sync_replicas({1, 2, 3}, followers, 10, NOW_MS, LAG_MS) == {2}


def test_member_at_the_leaders_end_is_in_sync_however_long_it_was_silent() -> None:
    assert not out_of_sync_replicas({1, 2}, {2: follower(2, 10, NEVER_MS)}, 10, NOW_MS, LAG_MS)


def test_follower_behind_the_leaders_term_may_not_join() -> None:
    assert not may_join(follower(2, 9), high_watermark=5, leader_epoch_start_offset=10)
    assert may_join(follower(2, 10), high_watermark=5, leader_epoch_start_offset=10)


def test_follower_that_reaches_the_previous_end_was_caught_up_when_it_asked_before() -> None:
    first = FollowerState(2).after_fetch(0, 0, 1000, leader_end_offset=5, broker_epoch=1)
    second = first.after_fetch(5, 0, 2000, leader_end_offset=9, broker_epoch=1)
    assert (first.last_caught_up_ms, second.last_caught_up_ms) == (NEVER_MS, 1000)


def test_same_epoch_truncates_to_the_nearer_end() -> None:
    assert truncation_offset(3, 40, own_epoch=3, own_epoch_end=50, own_end_offset=60) == 40


def test_epoch_the_follower_lacks_truncates_to_the_end_of_its_own_smaller_one() -> None:
    assert truncation_offset(5, 40, own_epoch=3, own_epoch_end=30, own_end_offset=60) == 30


def test_follower_without_epochs_truncates_to_the_leaders_end() -> None:
    assert truncation_offset(5, 40, NO_EPOCH, -1, 60) == 40


offsets = st.integers(0, 20)


@given(
    current=offsets,
    leader_end=offsets,
    ends=st.dictionaries(st.integers(2, 5), offsets, max_size=4),
    isr=st.sets(st.integers(2, 5)),
    proposed=st.none() | st.sets(st.integers(2, 5)),
)
def test_no_record_below_an_advanced_mark_is_missing_from_the_maximal_isr(
    current, leader_end, ends, isr, proposed
) -> None:
    isr = {1} | (isr & ends.keys())
    proposed = None if proposed is None else {1} | (proposed & ends.keys())
    followers = [follower(broker_id, end, NEVER_MS) for broker_id, end in ends.items()]
    result = mark(current, leader_end, isr, followers, proposed=proposed)
    assert result >= current
    if result > current:
        members = (isr | (proposed or set())) - {1}
        assert all(ends[member] >= result for member in members)
        assert result <= leader_end


def test_only_a_follower_in_the_isr_that_lacks_records_is_behind() -> None:
    followers = {2: follower(2, 9, NOW_MS - 300), 3: follower(3, 10, NEVER_MS), 4: follower(4, 5, NEVER_MS)}
    assert behind_ms({1, 2, 3}, followers, 10, NOW_MS) == {2: 300, 3: 0}
