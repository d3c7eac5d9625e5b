"""What clients may make a coordinator hold: members' words, members that never come back, groups."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.weights import group_weight, offset_weight
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.allocations import allocations
from tests.support.group_fakes import SESSION_MS, Harness, recounted_bytes

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
COUNTED = 2_000


def test_a_member_that_says_too_much_of_itself_is_refused():
    h = Harness(landline_group_member_max_bytes=1000)
    assert h.join(protocols=(("range", bytes(1000)),)).error is Errors.INVALID_REQUEST
    many = tuple((f"p{number}", bytes(90)) for number in range(11))
    assert h.join(protocols=many).error is Errors.INVALID_REQUEST
    assert h.join(protocols=(("range", bytes(900)),)).waiting


def test_members_that_never_come_back_have_a_bound_and_those_that_do_join():
    h = Harness(landline_group_pending_max_count=3)
    pending = [h.join(require_known=True).result.member_id for _ in range(3)]
    assert h.join(require_known=True).error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.join(pending[0], require_known=True).waiting
    assert h.join(require_known=True).error is Errors.MEMBER_ID_REQUIRED


def test_groups_have_a_bound_that_those_there_are_do_not_feel():
    h = Harness(landline_group_max_count=2)
    h.stable_group()
    assert h.commit({T0: 1}, group="g2").result == {T0: Errors.NONE}
    assert h.join(group="g3").error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.commit({T0: 1}, group="g3").result == {T0: Errors.GROUP_MAX_SIZE_REACHED}
    assert h.commit({T0: 2}, group="g2").result == {T0: Errors.NONE}


# --- memory


def words(size: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", bytes(size)),)


def said(offset: int, metadata: str) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, -1, metadata, 0)


def fill(h: Harness) -> list[str]:
    """Groups of one member each, until there is room for no more; their names."""
    names = []
    for number in range(1_000):
        if not h.join(group=f"flood-{number}", protocols=words(9_000)).waiting:
            return names
        names.append(f"flood-{number}")
    raise AssertionError("there was always room")


def test_members_beyond_the_memory_are_refused_and_make_no_group():
    h = Harness(landline_group_max_bytes=200_000)
    names = fill(h)
    assert 10 < len(names) < 20
    assert 180_000 < h.held_bytes <= 200_000
    assert h.join(group="another", protocols=words(9_000)).error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.coordinator.describe("another").state == "Dead"
    assert h.join(group=names[0], protocols=words(20_000)).error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.held_bytes == recounted_bytes(h.coordinator) <= 200_000


def test_members_in_many_pieces_weigh_as_much_as_the_pieces_take():
    h = Harness(landline_group_max_bytes=200_000)
    pieces = tuple((f"{number}", b"") for number in range(2_000))
    assert sum(len(name) for name, _ in pieces) < 10_000
    assert h.join(protocols=pieces).error is Errors.GROUP_MAX_SIZE_REACHED


def test_pending_members_weigh_too():
    h = Harness(landline_group_max_bytes=50_000)
    errors = [h.join(require_known=True, client_id="c" * 8_000).error for _ in range(10)]
    assert set(errors) == {Errors.MEMBER_ID_REQUIRED, Errors.GROUP_MAX_SIZE_REACHED}
    assert h.held_bytes <= 50_000
    h.advance(SESSION_MS)
    assert h.held_bytes == recounted_bytes(h.coordinator) < 5_000


def test_a_working_group_feels_nothing_of_a_flood():
    h = Harness(landline_group_max_bytes=200_000)
    (member,) = h.stable_group(protocols=words(5_000), instance="i")
    assert h.commit({T0: said(1, "m" * 90)}, member.member_id, 1, instance="i").result == {T0: Errors.NONE}
    fill(h)
    answer = h.commit({TopicPartition("u", number): 1 for number in range(1_000)}, group="i" * 100).result
    assert Errors.INVALID_COMMIT_OFFSET_SIZE in answer.values()
    for offset in range(2, 12):
        answer = h.commit({T0: said(offset, "n" * 90)}, member.member_id, 1, instance="i").result
        assert answer == {T0: Errors.NONE}
    again = h.join(member.member_id, protocols=words(4_000), instance="i")
    h.advance(1_000)
    assert again.error is Errors.NONE
    assert h.sync(again.result, {member.member_id: bytes(500)}, instance="i").error is Errors.NONE
    returned = h.join(protocols=words(4_000), instance="i")
    assert returned.error is Errors.NONE, "a static member that was restarted"
    assert h.heartbeat(returned.result, instance="i") is Errors.NONE


def test_a_member_that_says_more_is_refused_where_there_is_no_room_and_stays():
    h = Harness(landline_group_max_bytes=200_000)
    (member,) = h.stable_group()
    fill(h)
    assert h.join(member.member_id, protocols=words(900)).error is not Errors.GROUP_MAX_SIZE_REACHED
    refused = h.join(member.member_id, protocols=words(150_000))
    assert refused.error is Errors.GROUP_MAX_SIZE_REACHED
    assert h.held_bytes <= 200_000
    assert member.member_id in h.coordinator._registry.find(h.GROUP).group.members


def test_new_offsets_beyond_the_memory_are_refused_one_by_one_and_old_ones_are_not():
    h = Harness(landline_group_max_bytes=20_000)
    h.commit({T0: 1})
    many = {TopicPartition("t", number): 2 for number in range(100)}
    answer = h.commit(many).result
    assert answer[T0] is Errors.NONE
    refused = {partition for partition, error in answer.items() if error is Errors.INVALID_COMMIT_OFFSET_SIZE}
    assert 0 < len(refused) < 99
    assert set(h.offsets()) == many.keys() - refused
    assert h.held_bytes == recounted_bytes(h.coordinator) <= 20_000
    assert h.commit({T0: said(3, "x" * 4_000)}).result == {T0: Errors.INVALID_COMMIT_OFFSET_SIZE}
    assert h.offsets()[T0] == 2
    assert h.commit({T1: 1}, group="g" * 9_000).result == {T1: Errors.INVALID_COMMIT_OFFSET_SIZE}
    assert h.coordinator.describe("g" * 9_000).state == "Dead"


def test_an_assignment_there_is_no_memory_for_has_the_members_join_again():
    h = Harness(landline_group_max_bytes=100_000)
    joining = h.join()
    h.advance(10_000)
    joined = joining.result
    big = h.sync(joined, {joined.member_id: bytes(200_000)})
    assert big.error is Errors.COORDINATOR_NOT_AVAILABLE
    assert h.state() == "PreparingRebalance"
    again = h.join(joined.member_id).result
    assert h.sync(again, {joined.member_id: bytes(500)}).error is Errors.NONE


def test_a_group_that_rebalances_has_the_memory_for_what_it_assigned_before():
    h = Harness(landline_group_max_bytes=200_000)
    joining = h.join()
    h.advance(10_000)
    joined = joining.result
    assert h.sync(joined, {joined.member_id: bytes(50_000)}).error is Errors.NONE
    again = h.join(
        joined.member_id
    ).result  # the leader asks for a rebalance, twice: the first is not assigned
    again = h.join(joined.member_id, protocols=words(10)).result
    fill(h)
    assert h.sync(again, {joined.member_id: bytes(50_000)}).error is Errors.NONE
    assert h.held_bytes == recounted_bytes(h.coordinator)
    h.leave(joined.member_id)
    assert h.held_bytes == recounted_bytes(h.coordinator) < 150_000


def test_memory_is_given_back_by_who_leaves_expires_or_is_deleted():
    h = Harness(landline_group_max_bytes=200_000, offsets_retention_minutes=1)
    names = fill(h)
    h.advance(10_000)
    for name in names:
        (member_id,) = h.coordinator._registry.find(name).group.members
        h.leave(member_id, group=name)
    h.coordinator.delete_expired()
    assert h.held_bytes == 0
    for number in range(100):
        h.commit({TopicPartition("t", number): 1}, group="a")
        h.commit({TopicPartition("u", number): 1}, group="b")
    assert h.held_bytes == recounted_bytes(h.coordinator) > 50_000
    h.coordinator.on_partitions_deleted([TopicPartition("t", number) for number in range(100)])
    h.coordinator.delete("b", lambda error: None)
    assert h.held_bytes == recounted_bytes(h.coordinator) == 0


def test_what_is_loaded_counts_and_is_not_refused_and_what_is_unloaded_does_not_count():
    h = Harness()
    h.stable_group()
    h.commit({TopicPartition("t", number): 1 for number in range(100)}, group="offsets")
    before = h.coordinator
    held = h.held_bytes
    before.on_resignation(0, 1)
    assert h.held_bytes == 0
    h.config = BrokerConfig.from_properties({"zookeeper.connect": "z:2181", "landline.group.max.bytes": "1"})
    h.restart(1)
    assert len(h.offsets("offsets")) == 100
    assert h.state() == "Stable"
    assert h.held_bytes == recounted_bytes(h.coordinator)
    assert abs(h.held_bytes - held) < 1_000
    assert h.commit({T0: 2}, group="offsets").result == {T0: Errors.NONE}
    assert h.commit({TopicPartition("t", 100): 2}, group="offsets").result == {
        TopicPartition("t", 100): Errors.INVALID_COMMIT_OFFSET_SIZE
    }


def test_refusals_are_told_of_once_a_second_with_the_key():
    h = Harness(landline_group_max_bytes=1)
    with capture_logs() as lines:
        for number in range(50):
            h.join(group=f"g{number}")
        h.advance(1_000)
        h.join(group="last")
    assert [line["event"] for line in lines] == ["group_memory_full"] * 2
    assert lines[0]["setting"] == "landline.group.max.bytes"
    assert (lines[0]["group"], lines[1]["group"], lines[1]["left_out"]) == ("g0", "last", 49)


def test_a_flood_of_groups_has_few_lines_in_the_log_and_few_groups_have_all_of_theirs():
    h = Harness()
    with capture_logs() as lines:
        for number in range(20):
            h.join(group=f"g{number}")
    assert len(lines) == 20
    with capture_logs() as lines:
        for number in range(2_000):
            h.join(group=f"flood{number}")
    assert len(lines) == 80
    h.advance(500)
    with capture_logs() as lines:
        h.join(group="after")
    assert [line["left_out"] for line in lines] == [1_920]


def test_no_memory_at_all_is_no_setting():
    with pytest.raises(ConfigError, match=r"landline.group.max.bytes"):
        BrokerConfig.from_properties({"zookeeper.connect": "z:2181", "landline.group.max.bytes": "0"})


def test_a_group_of_one_offset_takes_no_more_memory_than_it_weighs():
    h = Harness(landline_group_max_bytes=1 << 30)
    h.commit({T0: 1}, group="first")
    weighed = h.held_bytes
    with allocations() as taken:
        for number in range(COUNTED):
            # As they come from the wire: each group has a text of its own for the topic's name.
            partition = TopicPartition(b"topic".decode(), 0)
            assert h.commit({partition: 1 << 40}, group=f"group-{number}").result == {partition: Errors.NONE}
        for log in h.appender.logs.values():
            log.batches.clear()
        assert taken() < h.held_bytes - weighed
    assert h.held_bytes - weighed < 2_600 * COUNTED


def test_as_many_groups_as_there_may_be_fit_with_an_offset_each():
    config = BrokerConfig.from_properties({"zookeeper.connect": "z:2181"})
    each = group_weight("a-group-with-quite-a-long-name") + offset_weight(
        TopicPartition("and-its-topic-has-one", 0), OffsetAndMetadata(1, 1, "", 1)
    )
    assert config.int("landline.group.max.count") * each <= config.int("landline.group.max.bytes")
