"""The coordinator's ownership: storing before answering, elections, loading, resignation, deletion."""

from __future__ import annotations

import pytest

from broker.coordinator.common import partitioning
from broker.coordinator.common.partitioning import java_hash, partition_for
from broker.coordinator.group.records import (
    GroupKey,
    OffsetAndMetadata,
    decode_group_value,
    decode_key,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from broker.metrics.exposition import Exposition
from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import APPEND_ERRORS, Answers, Harness

TP = TopicPartition("t", 0)
COMMITTED_ELSEWHERE = OffsetAndMetadata(99, -1, "", 5)


@pytest.fixture
def h() -> Harness:
    return Harness()


def joined(h: Harness, **join):
    answers = h.join(**join)
    h.advance(3_000)
    return answers.result


def deleted(h: Harness, group: str = Harness.GROUP) -> Answers:
    answers = Answers()
    h.coordinator.delete(group, answers)
    return answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31)), ("Zażółć 🙂", None)],
)
def test_hash_is_javas(text, expected):
    if expected is None:  # by the definition, over UTF-16 code units
        units = text.encode("utf-16-be")
        expected = 0
        for index in range(0, len(units), 2):
            expected = expected * 31 + int.from_bytes(units[index : index + 2], "big")
        expected = (expected + (1 << 31)) % (1 << 32) - (1 << 31)
    assert java_hash(text) == expected


def test_long_names_are_hashed_and_not_kept():
    partitioning._kept_hash.cache_clear()
    assert java_hash("x" * 250) == partitioning._hash("x" * 250)
    assert partitioning._kept_hash.cache_info().currsize == 0
    java_hash("x" * 249)
    assert partitioning._kept_hash.cache_info().currsize == 1


def test_partition_of_the_smallest_hash_is_zero():
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50


def test_sync_is_answered_only_when_the_assignment_is_acknowledged(h):
    member = joined(h)
    h.appender.hold = True
    synced = h.sync(member, {member.member_id: b"part"})
    assert synced.waiting
    assert h.state() == "CompletingRebalance"
    h.appender.release()
    assert synced.result.assignment == b"part"
    assert set(h.appender.required_acks) == {-1}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *APPEND_ERRORS,
        (Errors.REQUEST_TIMED_OUT, Errors.REBALANCE_IN_PROGRESS),
        (Errors.MESSAGE_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.CORRUPT_MESSAGE, Errors.CORRUPT_MESSAGE),
    ],
)
def test_assignment_that_cannot_be_stored_is_told_and_rebalanced(h, error, expected):
    member = joined(h)
    h.appender.error = error
    assert h.sync(member, {}).error is expected
    assert h.state() == "PreparingRebalance"


def test_appender_that_raises_is_an_error_and_not_a_silence(h):
    member = joined(h)
    h.appender.hold = True

    def explode(**_):
        raise OSError(28, "No space left on device")

    h.coordinator._store._appender = explode
    assert h.sync(member, {}).error is Errors.UNKNOWN_SERVER_ERROR


def test_stored_assignment_of_an_overtaken_generation_changes_nothing(h):
    member = joined(h)
    h.appender.hold = True
    synced = h.sync(member, {member.member_id: b"old"})
    h.join()
    assert synced.error is Errors.REBALANCE_IN_PROGRESS
    h.appender.release()
    assert h.state() == "PreparingRebalance"


def test_group_record_is_kafkas_and_names_the_members(h):
    (member,) = h.stable_group()
    record = next(r for r in h.appender.log(0).records() if decode_key(r.key) == GroupKey(h.GROUP))
    stored = decode_group_value(record.value)
    assert (stored.generation_id, stored.protocol, stored.leader) == (1, "range", member.member_id)
    assert [(m.subscription, m.assignment) for m in stored.members] == [
        (b"range-metadata", member.member_id.encode())
    ]


def test_new_coordinator_takes_the_group_over_with_fresh_sessions(h):
    leader, follower = h.stable_group(2)
    h.advance(9_000)
    h.restart()
    h.advance(9_000)
    assert h.state() == "Stable"
    assert h.heartbeat(leader) is Errors.NONE
    assert h.sync(follower).result.assignment == follower.member_id.encode()
    h.advance(5_000)
    assert h.heartbeat(follower) is Errors.NONE
    h.advance(9_999)
    assert (
        h.heartbeat(leader) is Errors.REBALANCE_IN_PROGRESS or h.heartbeat(leader) is Errors.UNKNOWN_MEMBER_ID
    )


def test_loaded_group_keeps_its_leader_even_if_it_is_not_the_eldest(h):
    eldest, follower = h.stable_group(2)
    again = h.join(follower.member_id, protocols=(("range", b"changed"),))
    h.advance(10_000)  # the eldest does not rejoin: the follower leads
    assert again.result.leader_id == follower.member_id
    h.sync(again.result, {})
    h.restart()
    assert (
        h.join(follower.member_id, protocols=(("range", b"changed"),)).result.leader_id == follower.member_id
    )
    assert h.heartbeat(eldest) is Errors.UNKNOWN_MEMBER_ID


def test_group_grown_over_the_limit_rebalances_when_loaded(h):
    h.stable_group(3)
    h.config = h.config.from_properties({"zookeeper.connect": "z:2181", "group.max.size": "2"})
    h.restart()
    assert h.state() == "PreparingRebalance"


def test_requests_before_startup_and_after_shutdown_find_no_coordinator(h):
    waiting = h.join()
    h.coordinator.shutdown()
    assert waiting.error is Errors.NOT_COORDINATOR
    assert h.join().error is Errors.COORDINATOR_NOT_AVAILABLE
    assert h.coordinator.list_groups((), ())[0] is Errors.COORDINATOR_NOT_AVAILABLE


def test_while_groups_are_loaded_each_request_says_so_in_its_way():
    h = Harness(elect=False)
    h.coordinator.on_election(0, 5)
    assert h.join().error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert h.commit({TP: 1}).result == {TP: Errors.COORDINATOR_LOAD_IN_PROGRESS}
    assert (
        h.coordinator.fetch_offsets("g1", None, require_stable=False)[0]
        is Errors.COORDINATOR_LOAD_IN_PROGRESS
    )
    assert h.leave("m") == [Errors.COORDINATOR_LOAD_IN_PROGRESS]
    assert h.coordinator.describe("g1").error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert h.coordinator.list_groups((), ())[0] is Errors.COORDINATOR_LOAD_IN_PROGRESS
    stranger = Harness().stable_group()[0]
    assert h.heartbeat(stranger) is Errors.NONE
    assert h.sync(stranger).error is Errors.REBALANCE_IN_PROGRESS
    assert h.scheduler.run() == ["load-groups-0"]
    assert h.coordinator.list_groups((), ())[0] is Errors.NONE


def test_partition_of_another_broker_is_not_coordinated_here():
    h = Harness(elect=False)
    assert h.join().error is Errors.NOT_COORDINATOR
    assert h.commit({TP: 1}).result == {TP: Errors.NOT_COORDINATOR}
    assert deleted(h).result is Errors.NOT_COORDINATOR


def test_resignation_answers_who_waits_and_forgets_the_groups(h):
    leader, _ = h.stable_group(2)
    rejoining = h.join(leader.member_id)
    h.coordinator.on_resignation(0, 1)
    assert rejoining.error is Errors.NOT_COORDINATOR
    assert h.heartbeat(leader) is Errors.NOT_COORDINATOR
    assert h.timer.waiting == 0


def test_resignation_answers_members_that_await_assignments(h):
    waiting = [h.join(), h.join()]
    h.advance(6_000)
    synced = h.sync(waiting[1].result)
    h.coordinator.on_resignation(0, 1)
    assert synced.error is Errors.NOT_COORDINATOR


def test_stale_resignation_and_stale_election_are_ignored(h):
    (member,) = h.stable_group()
    h.coordinator.on_election(0, 7)
    h.scheduler.run()
    h.coordinator.on_resignation(0, 6)
    assert h.heartbeat(member) is Errors.NONE
    h.coordinator.on_resignation(0, 8)
    h.coordinator.on_election(0, 7)
    assert h.heartbeat(member) is Errors.NOT_COORDINATOR


def test_election_announced_twice_loads_once(h):
    (member,) = h.stable_group()
    h.coordinator.on_election(0, 0)
    assert h.scheduler.run() == []
    assert h.heartbeat(member) is Errors.NONE


def test_next_epoch_of_a_partition_led_here_disturbs_nobody(h):
    (member,) = h.stable_group()
    newcomer = h.join(require_known=True).result.member_id
    rejoining = h.join(member.member_id)
    h.coordinator.on_election(0, 1)
    assert h.scheduler.run() == []
    assert h.join(newcomer).result.generation_id == rejoining.result.generation_id == 2
    h.coordinator.on_resignation(0, 0)  # older than what is known
    assert h.state() == "CompletingRebalance"


def test_skipped_epoch_means_another_leader_and_a_new_load(h):
    (member,) = h.stable_group()
    waiting = h.join()
    h.appender.log(0).append_records(
        (encode_offset_key(h.GROUP, TP), encode_offset_value(COMMITTED_ELSEWHERE))
    )
    h.coordinator.on_election(0, 2)
    assert waiting.error is Errors.NOT_COORDINATOR
    assert h.scheduler.run() == ["load-groups-0"]
    assert h.offsets() == {TP: 99}
    assert h.heartbeat(member) is Errors.NONE


def test_resignation_while_loading_wins_over_the_load(h):
    (member,) = h.stable_group()
    h.coordinator.on_election(0, 1)
    h.coordinator.on_resignation(0, 2)
    h.scheduler.run()
    assert h.heartbeat(member) is Errors.NOT_COORDINATOR


def test_later_election_wins_over_the_load_of_an_earlier_one(h):
    (member,) = h.stable_group()
    h.coordinator.on_election(0, 1)
    h.coordinator.on_election(0, 2)
    h.scheduler.run()
    assert h.heartbeat(member) is Errors.NONE
    assert len(h.coordinator.list_groups((), ())[1]) == 1


def test_recreated_offsets_topic_counts_its_epochs_from_zero_again(h):
    h.coordinator.on_resignation(0, None)
    h.appender.logs.clear()
    h.coordinator.on_election(0, 0)
    h.scheduler.run()
    assert h.join().waiting


def test_log_that_cannot_be_read_is_tried_again_and_nothing_is_served_meanwhile(h):
    h.commit({TP: 42})
    h.appender.log(0).broken = True
    h.restart()
    assert (
        h.coordinator.fetch_offsets(h.GROUP, None, require_stable=False)[0]
        is Errors.COORDINATOR_LOAD_IN_PROGRESS
    )
    h.appender.log(0).broken = False
    h.scheduler.run()
    assert h.offsets() == {TP: 42}


def test_unreadable_records_are_skipped_with_one_line(h, capsys):
    log = h.appender.log(0)
    key = encode_offset_key(h.GROUP, TP)
    log.append_records((key, encode_offset_value(OffsetAndMetadata(1, -1, "", 5))))
    log.append_records((b"\x00\x03\x00\x01g", b"new protocol"), (None, b"no key"), (key, b"\x00\x03torn"))
    log.append_records((b"\x00\x02\x00\x02\xff\xff", b"not UTF-8"), (encode_group_key("g9"), b"\x7f\x7f"))
    capsys.readouterr()
    h.restart()
    lines = [line for line in capsys.readouterr().out.splitlines() if "offsets_records_skipped" in line]
    assert len(lines) == 1
    assert "skipped=5" in lines[0]
    assert "first_offset=1" in lines[0]
    assert h.offsets() == {TP: 1}


def test_batch_that_fails_its_checksum_is_skipped(h, capsys):
    h.commit({TP: 1})
    log = h.appender.log(0)
    last, batch = log.batches[-1]
    log.batches[-1] = (last, batch[:-1] + bytes([batch[-1] ^ 1]))
    h.commit({TopicPartition("t", 1): 2})
    h.restart()
    assert h.offsets() == {TopicPartition("t", 1): 2}
    assert "checksum" in capsys.readouterr().out


def test_group_with_members_cannot_be_deleted_and_an_unknown_one_is_not_found(h):
    h.stable_group()
    assert deleted(h).result is Errors.NON_EMPTY_GROUP
    assert deleted(h, "nowhere").result is Errors.GROUP_ID_NOT_FOUND


def test_deleted_group_is_gone_with_its_offsets_also_after_a_restart(h):
    (member,) = h.stable_group()
    h.commit({TP: 5}, member.member_id, 1)
    h.leave(member.member_id)
    assert deleted(h).result is Errors.NONE
    assert h.coordinator.list_groups((), ())[1] == []
    h.restart()
    assert h.coordinator.list_groups((), ())[1] == []
    assert h.offsets() == {}


def test_deleted_group_can_be_used_again(h):
    h.commit({TP: 5})
    deleted(h)
    h.commit({TP: 6})
    h.restart()
    assert h.offsets() == {TP: 6}


def test_deletion_that_cannot_be_stored_says_so(h):
    h.commit({TP: 5})
    h.appender.error = Errors.NOT_LEADER_OR_FOLLOWER
    assert deleted(h).result is Errors.NOT_COORDINATOR


def test_the_times_of_loads_are_exported_by_kafkas_names() -> None:
    h = Harness(elect=False)
    metrics = Metrics()
    coordinator = h.new_coordinator(metrics)
    coordinator.on_election(0, 0)
    h.advance(70)
    h.scheduler.run()
    page = Exposition(metrics).text().decode()
    for name in ("partitionloadtimemax", "partitionloadtimeavg"):
        assert f"\nkafka_server_groupcoordinatormetrics_{name} 70.0\n" in page
