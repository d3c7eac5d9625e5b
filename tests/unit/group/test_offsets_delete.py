"""OffsetDelete: offsets that nobody subscribes to go, and the group with its last one."""

from __future__ import annotations

import pytest

from broker.coordinator.group.records import GroupKey, OffsetKey
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import APPEND_ERRORS, Answers, Harness
from tests.unit.group.test_offsets_expiry import subscription, tombstones

TP = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)


@pytest.fixture
def h() -> Harness:
    return Harness()


def delete(h: Harness, *partitions: TopicPartition, group: str = Harness.GROUP) -> Answers:
    answers = Answers()
    h.coordinator.delete_offsets(group, partitions, lambda *result: answers(result))
    return answers


def test_offsets_of_a_group_without_members_go_and_stay_gone(h):
    h.commit({TP: 1, OTHER: 2})
    assert delete(h, TP).result == (Errors.NONE, {TP: Errors.NONE})
    assert h.offsets() == {OTHER: 2}
    assert tombstones(h) == [OffsetKey(h.GROUP, TP)]
    h.restart()
    assert h.offsets() == {OTHER: 2}


def test_an_offset_that_is_not_there_is_deleted_without_an_error(h):
    h.commit({OTHER: 2})
    assert delete(h, TP).result == (Errors.NONE, {TP: Errors.NONE})


def test_a_request_without_partitions_changes_nothing(h):
    (member,) = h.stable_group()
    h.leave(member.member_id)
    assert delete(h).result == (Errors.NONE, {})
    assert h.state() == "Empty"


def test_the_group_ends_with_its_last_offset(h):
    (member,) = h.stable_group()
    h.commit({TP: 1}, member.member_id, member.generation_id)
    h.leave(member.member_id)
    assert delete(h, TP).result == (Errors.NONE, {TP: Errors.NONE})
    assert h.state() == "Dead"
    assert tombstones(h) == [OffsetKey(h.GROUP, TP), GroupKey(h.GROUP)]
    assert delete(h, TP).result == (Errors.GROUP_ID_NOT_FOUND, {})


def test_members_keep_the_offsets_of_the_topics_that_they_subscribe_to(h):
    (member,) = h.stable_group(protocols=(("range", subscription("t")),))
    h.commit({TP: 1, OTHER: 2}, member.member_id, member.generation_id)
    assert delete(h, TP, OTHER).result == (
        Errors.NONE,
        {TP: Errors.GROUP_SUBSCRIBED_TO_TOPIC, OTHER: Errors.NONE},
    )
    assert h.offsets() == {TP: 1}
    assert h.state() == "Stable"


def test_members_whose_subscription_cannot_be_read_keep_all(h):
    (member,) = h.stable_group()
    h.commit({TP: 1}, member.member_id, member.generation_id)
    assert delete(h, TP).result == (Errors.NONE, {TP: Errors.GROUP_SUBSCRIBED_TO_TOPIC})


def test_members_of_another_protocol_keep_all(h):
    (member,) = h.stable_group(protocol_type="connect")
    h.commit({TP: 1}, member.member_id, member.generation_id)
    assert delete(h, TP).result == (Errors.NON_EMPTY_GROUP, {})
    assert h.offsets() == {TP: 1}


@pytest.mark.parametrize(("error", "told"), APPEND_ERRORS)
def test_a_tombstone_that_was_not_written_is_told(h, error, told):
    h.commit({TP: 1, OTHER: 2})
    h.appender.error = error
    assert delete(h, TP).result == (Errors.NONE, {TP: told})


def test_after_tombstones_that_were_not_written_no_others_are(h):
    many = [TopicPartition("t", number) for number in range(2_500)]
    h.commit(dict.fromkeys(many, 1))
    before = h.appender.log(0).log_end_offset
    h.appender.next_errors = [Errors.NONE, Errors.NOT_ENOUGH_REPLICAS]
    error, told = delete(h, *many).result
    assert (error, set(told.values())) == (Errors.NONE, {Errors.COORDINATOR_NOT_AVAILABLE})
    assert h.appender.log(0).log_end_offset - before == 1_000


def test_another_brokers_group_is_refused(h):
    h = Harness(elect=False)
    assert delete(h, TP).result == (Errors.NOT_COORDINATOR, {})
