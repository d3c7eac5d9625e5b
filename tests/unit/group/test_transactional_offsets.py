"""Offsets that producers commit in transactions: kept apart until a marker decides about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.messages import Effects, MemberIdentity, ProducerOfBatch
from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.transactional_offsets import CommittedOffset, TransactionalOffsets
from broker.coordinator.group.txn_commits import TransactionalCommit
from broker.log.producers.markers import TransactionMarker, build_marker
from broker.protocol.errors import Errors
from broker.record.batch import iter_batches
from broker.replication.transaction_markers import OffsetsMarker
from broker.replication.transaction_verification import Question, Unverified, VerifiedCallback
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import APPEND_ERRORS, Answers, Harness, recounted_bytes
from tests.support.log_partitions import verification_over

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PID = 9


def value(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, -1, metadata, 0)


def values(offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
    return {partition: one.value.offset for partition, one in offsets.items()}


# -- the offsets of one group


def test_offsets_are_unstable_until_the_marker_and_then_valid() -> None:
    some, offsets = TransactionalOffsets(), {A: value(1), B: value(2)}
    some.begin(PID, offsets)
    assert some.is_unstable(A)
    assert some.finish(PID, offsets, 10) == {}
    assert some.is_unstable(A)
    assert values(some.end(PID, 12, committed=True)) == {A: 1, B: 2}
    assert not some
    assert (some.weight, some.is_unstable(A)) == (0, False)


@pytest.mark.parametrize("how", ["aborted", "failed"])
def test_offsets_that_never_become_valid_leave_nothing(how: str) -> None:
    some, offsets = TransactionalOffsets(), {A: value(1)}
    some.begin(PID, offsets)
    some.finish(PID, offsets, None if how == "failed" else 10)
    assert some.end(PID, 12, committed=how == "failed") == {}
    assert (bool(some), some.weight, some.is_unstable(A)) == (False, 0, False)


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_may_be_reported_before_the_append_that_it_decides_about(committed: bool) -> None:
    some, early, late = TransactionalOffsets(), {A: value(1)}, {A: value(2)}
    some.begin(PID, early)
    some.begin(PID, late)
    assert some.end(PID, 12, committed=committed) == {}
    assert values(some.finish(PID, early, 11)) == ({A: 1} if committed else {})
    assert some.finish(PID, late, 13) == {}  # of the next transaction
    assert some.is_unstable(A)
    assert values(some.end(PID, 14, committed=True)) == {A: 2}
    assert (bool(some), some.weight) == (False, 0)


def test_the_later_offset_of_a_transaction_counts_in_whatever_order_they_are_acknowledged() -> None:
    some, first, second = TransactionalOffsets(), {A: value(1, "m" * 200)}, {A: value(2)}
    some.begin(PID, first)
    some.begin(PID, second)
    some.finish(PID, second, 11)
    some.finish(PID, first, 10)
    assert values(some.end(PID, 12, committed=True)) == {A: 2}
    assert some.weight == 0


def test_producers_do_not_decide_about_each_other() -> None:
    some = TransactionalOffsets()
    for pid in (1, 2):
        some.load(pid, {A: CommittedOffset(pid, value(pid))})
    assert values(some.end(1, 9, committed=True)) == {A: 1}
    assert some.is_unstable(A)
    some.remove([A])
    assert not some.is_unstable(A)
    assert some.weight == 0


def test_what_is_removed_while_it_is_written_is_gone_and_its_write_is_still_under_way() -> None:
    some, early, late = TransactionalOffsets(), {A: value(1), B: value(2)}, {A: value(3)}
    some.begin(PID, early)
    assert some.remove([A, TopicPartition("t", 2)]) == {A}
    assert (some.is_unstable(A), some.is_unstable(B)) == (False, True)
    some.begin(PID, late)  # after the removal
    assert some.finish(PID, early, 10) == {}
    assert some.finish(PID, late, 11) == {}
    assert values(some.end(PID, 12, committed=True)) == {A: 3, B: 2}
    assert (bool(some), some.weight) == (False, 0)


def test_the_producer_of_a_write_of_which_nothing_is_left_is_known_until_it_ends() -> None:
    some, offsets = TransactionalOffsets(), {A: value(1)}
    some.begin(PID, offsets)
    some.remove([A])
    assert (some.has(PID), some.weight) == (True, 0)
    assert some.end(PID, 12, committed=True) == {}
    assert some.finish(PID, offsets, 10) == {}
    assert (some.has(PID), bool(some)) == (False, False)


# -- requests


class Asker:
    """A sender of verifications whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[Question, VerifiedCallback]] = []
        self.known: Unverified | None = None

    def verify_here(self, _question: Question) -> Unverified | None:
        return self.known

    def verify(self, question: Question, then: VerifiedCallback) -> None:
        self.asked.append((question, then))


class Transactions(Harness):
    """A coordinator, with the requests of a transactional producer."""

    def commit_in_transaction(
        self,
        offsets: dict[TopicPartition, int],
        *,
        group: str = "g1",
        generation: int = -1,
        member: str = "",
        pid: int = PID,
    ) -> Answers:
        answers = Answers()
        request = TransactionalCommit(
            ProducerOfBatch(pid, 0),
            MemberIdentity(member),
            generation,
            {partition: value(offset) for partition, offset in offsets.items()},
            answers,
        )
        self.coordinator.transactions.commit(group, "tid", request, knows_abortable=True)
        return answers

    def end(self, committed: bool) -> None:
        """A marker is appended, and the coordinator hears of it."""
        offset = self.appender.log(0).append(build_marker(PID, 0, TransactionMarker(committed, 0), 0))
        self.coordinator.transactions.on_marker(OffsetsMarker(0, PID, offset, committed))

    def stable(self, partition: TopicPartition) -> Errors | int:
        error, found = self.coordinator.fetch_offsets("g1", [partition], require_stable=True)
        if error is not Errors.NONE:
            return error
        return found[partition].offset if found[partition].error is Errors.NONE else found[partition].error


@pytest.fixture
def h() -> Transactions:
    return Transactions()


def test_a_commit_in_a_transaction_is_written_as_a_part_of_it(h: Transactions) -> None:
    assert h.commit_in_transaction({A: 5}).result == {A: Errors.NONE}
    (header,) = iter_batches(h.appender.log(0).read_bytes(0, 1 << 20))
    assert (header.is_transactional, header.producer_id, header.base_sequence) == (True, PID, 0)
    assert (h.offsets(), h.stable(A), h.stable(B)) == ({}, Errors.UNSTABLE_OFFSET_COMMIT, -1)
    h.end(committed=True)
    assert (h.offsets(), h.stable(A)) == ({A: 5}, 5)
    assert h.held_bytes == recounted_bytes(h.coordinator)


def test_a_later_plain_commit_stands_against_an_earlier_one_in_a_transaction(h: Transactions) -> None:
    h.commit_in_transaction({A: 5})
    h.commit({A: 7})
    h.end(committed=True)
    assert h.offsets() == {A: 7}


@pytest.mark.parametrize("committed", [True, False])
def test_an_offset_in_an_open_transaction_outlives_the_expiry_of_the_one_before_it(committed: bool) -> None:
    h = Transactions(offsets_retention_minutes=10)
    h.commit({A: 5, B: 6})
    h.advance(600_000)
    h.commit_in_transaction({A: 7})
    h.coordinator.delete_expired()
    assert h.stable(A) is Errors.UNSTABLE_OFFSET_COMMIT
    assert h.offsets() == {A: 5}, "the other partition's offset has expired"
    h.end(committed=committed)
    assert h.offsets() == {A: 7 if committed else 5}
    h.restart()
    assert h.offsets() == {A: 7 if committed else 5}
    h.coordinator.delete_expired()
    assert h.held_bytes == recounted_bytes(h.coordinator)


def test_a_commit_that_is_being_written_is_unstable_too(h: Transactions) -> None:
    h.appender.hold = True
    h.commit({A: 1})
    assert h.stable(A) is Errors.UNSTABLE_OFFSET_COMMIT
    h.appender.release()
    assert h.stable(A) == 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_during_the_load_waits_for_it(committed: bool, h: Transactions) -> None:
    h.commit_in_transaction({A: 5})
    h.coordinator = h.new_coordinator()
    h.coordinator.on_election(0, 1)
    # The load has read the log up to here, but its groups are not there yet.
    h.coordinator.transactions.on_marker(OffsetsMarker(0, PID, h.appender.log(0).log_end_offset, committed))
    assert h.stable(A) is Errors.COORDINATOR_LOAD_IN_PROGRESS
    h.scheduler.run()
    assert h.stable(A) == (5 if committed else -1)


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_during_the_load_does_not_wait_for_the_loads_of_other_partitions(
    committed: bool, h: Transactions
) -> None:
    """Otherwise the marker of the producer's next transaction would decide about the offsets of this one."""
    h.commit_in_transaction({A: 5})
    h.coordinator = h.new_coordinator()
    h.coordinator.on_election(0, 1)
    h.coordinator.transactions.on_marker(OffsetsMarker(0, PID, h.appender.log(0).log_end_offset, committed))
    (load,) = [action for name, action, *_ in h.scheduler.tasks if name.startswith("load-")]
    load()
    assert h.stable(A) == (5 if committed else -1)
    h.commit_in_transaction({B: 6})
    h.end(not committed)
    h.scheduler.run()
    assert h.offsets() == ({A: 5} if committed else {B: 6})
    assert h.held_bytes == recounted_bytes(h.coordinator)


def test_a_marker_while_the_log_is_being_read_is_taken_up_once(h: Transactions, monkeypatch) -> None:
    log = h.appender.log(0)
    h.commit_in_transaction({A: 5})
    end, read = log.log_end_offset, log.read_bytes

    def read_and_mark(offset: int, most: int) -> memoryview:
        monkeypatch.undo()
        data = read(offset, most)
        h.end(committed=True)
        return data

    h.coordinator = h.new_coordinator()
    h.coordinator.on_election(0, 1)
    monkeypatch.setattr(log, "read_bytes", read_and_mark)
    h.scheduler.run()
    assert log.log_end_offset == end + 1
    assert h.offsets() == {A: 5}
    assert found(h) == []


def test_a_marker_for_a_load_that_comes_too_late_leaves_nothing(h: Transactions, monkeypatch) -> None:
    h.commit_in_transaction({A: 5})
    h.coordinator = h.new_coordinator()
    h.coordinator.on_election(0, 1)
    h.coordinator.transactions.on_marker(OffsetsMarker(0, PID, h.appender.log(0).log_end_offset, True))
    registry = h.coordinator._registry
    publish = registry.publish

    def publish_and_resign(*args: object) -> object:
        result = publish(*args)
        h.coordinator.on_resignation(0, 2)
        return result

    monkeypatch.setattr(registry, "publish", publish_and_resign)
    h.scheduler.run()
    assert h.stable(A) is Errors.NOT_COORDINATOR
    assert h.held_bytes == 0


def test_open_transactions_are_loaded_and_end_later(h: Transactions) -> None:
    h.commit_in_transaction({A: 5})
    h.restart()
    assert h.stable(A) is Errors.UNSTABLE_OFFSET_COMMIT
    h.end(committed=True)
    assert h.stable(A) == 5
    h.restart(2)
    assert h.stable(A) == 5
    assert h.held_bytes == recounted_bytes(h.coordinator)


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("is_written", [False, True])
def test_an_offset_in_a_transaction_goes_with_its_topic_whenever_that_is_deleted(
    is_written: bool, is_loaded: bool, h: Transactions
) -> None:
    h.appender.hold = not is_written
    answers = h.commit_in_transaction({A: 5, B: 6})
    h.coordinator.on_partitions_deleted([A])
    h.appender.release()
    assert answers.result == {A: Errors.NONE, B: Errors.NONE}
    if is_loaded:
        h.restart()
    assert (h.stable(A), h.stable(B)) == (-1, Errors.UNSTABLE_OFFSET_COMMIT)
    h.end(committed=True)
    for epoch in (2, 3):
        assert h.offsets() == {B: 6}
        assert h.held_bytes == recounted_bytes(h.coordinator)
        h.restart(epoch)


def test_an_offset_that_is_committed_for_the_new_topic_counts(h: Transactions) -> None:
    h.appender.hold = True
    h.commit_in_transaction({A: 5})
    h.coordinator.on_partitions_deleted([A])
    h.commit_in_transaction({A: 0})
    h.appender.release()
    h.end(committed=True)
    assert h.offsets() == {A: 0}
    h.restart()
    assert h.offsets() == {A: 0}


def test_the_marker_does_not_bring_back_a_deleted_group(h: Transactions) -> None:
    h.commit_in_transaction({A: 5})
    h.coordinator.delete("g1", lambda _error: None)
    h.end(committed=True)
    h.restart()
    assert h.offsets() == {}


@pytest.mark.parametrize(("append_error", "error"), APPEND_ERRORS)
def test_a_failed_append_leaves_the_offset_stable(
    append_error: Errors, error: Errors, h: Transactions
) -> None:
    h.appender.error = append_error
    assert h.commit_in_transaction({A: 5}).result == {A: error}
    assert h.stable(A) == -1


def test_members_and_generations_are_checked_if_they_are_named(h: Transactions) -> None:
    (joined,) = h.stable_group()
    assert h.commit_in_transaction({A: 1}).result == {A: Errors.NONE}  # an old producer
    good = h.commit_in_transaction({A: 2}, generation=joined.generation_id, member=joined.member_id)
    assert good.result == {A: Errors.NONE}
    for generation, member, error in (
        (joined.generation_id + 1, joined.member_id, Errors.ILLEGAL_GENERATION),
        (joined.generation_id, "stranger", Errors.UNKNOWN_MEMBER_ID),
    ):
        refused = h.commit_in_transaction({A: 3}, generation=generation, member=member)
        assert refused.result == {A: error}


def found(h: Transactions, producer_id: int = PID) -> list[str]:
    """The groups in which a marker of the producer is looked for."""
    return sorted(cell.group.group_id for cell in h.coordinator._registry._open.of(0, producer_id))


def test_a_marker_is_looked_for_in_its_producers_groups_alone(h: Transactions) -> None:
    h.commit({A: 1}, group="other")
    h.commit_in_transaction({A: 5})
    h.commit_in_transaction({A: 5}, group="g2")
    h.commit_in_transaction({A: 5}, group="g3", pid=PID + 1)
    for _ in range(2):
        assert found(h) == ["g1", "g2"]
        assert found(h, PID + 1) == ["g3"]
        h.restart()
    h.end(committed=True)
    assert found(h) == []
    assert found(h, PID + 1) == ["g3"]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_commit_that_fails_is_forgotten_when_it_is_answered(is_answered: bool, h: Transactions) -> None:
    h.appender.hold = True
    h.commit_in_transaction({A: 5})
    if is_answered:
        h.appender.release(Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert found(h) == ([] if is_answered else ["g1"])


def test_a_group_is_found_until_each_of_the_producers_commits_is_answered(h: Transactions) -> None:
    h.appender.hold = True
    h.commit_in_transaction({A: 5})
    h.commit_in_transaction({B: 6})
    h.end(committed=True)
    assert found(h) == ["g1"]
    h.appender.release()
    assert found(h) == []


def test_a_deleted_group_is_forgotten_with_the_next_expiry(h: Transactions) -> None:
    h.commit_in_transaction({A: 5})
    h.coordinator.delete("g1", lambda _error: None)
    h.coordinator.delete_expired()
    assert found(h) == []


@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_before_a_commit_does_not_hide_the_group_for_the_next_one(
    committed: bool, h: Transactions, monkeypatch
) -> None:
    def run_between_markers(cell: GroupCell, decide: Callable[..., Effects]) -> None:
        h.coordinator.transactions.on_marker(OffsetsMarker(0, PID, 0, True))
        monkeypatch.undo()
        cell.run(decide)
        h.end(committed=committed)

    monkeypatch.setattr(GroupCell, "run", run_between_markers)
    h.commit_in_transaction({A: 5})
    assert h.stable(A) == (5 if committed else -1)
    assert found(h) == []


def test_offsets_beyond_the_memory_are_refused() -> None:
    h = Transactions(landline_group_max_bytes=5_000)
    offsets = {TopicPartition("t", number): 1 for number in range(100)}
    errors = set(h.commit_in_transaction(offsets).result.values())
    assert errors == {Errors.NONE, Errors.INVALID_COMMIT_OFFSET_SIZE}
    assert h.held_bytes <= 5_000


# -- verification


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Errors.INVALID_TXN_STATE, Errors.INVALID_TXN_STATE),
        (Errors.NETWORK_EXCEPTION, Errors.COORDINATOR_LOAD_IN_PROGRESS),
        (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_COORDINATOR),
    ],
)
def test_offsets_of_an_unverified_transaction_are_not_written(
    answer: Errors, error: Errors, h: Transactions, tmp_path
) -> None:
    asker = Asker()
    h.coordinator.transactions.verification = verification_over(tmp_path, asker)
    answers = h.commit_in_transaction({A: 5})
    ((question, then),) = asker.asked
    assert answers.waiting
    assert question.partitions == [TopicPartition("__consumer_offsets", 0)]
    assert (question.producer.transactional_id, question.producer.producer_id) == ("tid", PID)
    then({question.partitions[0]: answer})
    assert answers.result == {A: error}
    assert h.appender.log(0).log_end_offset == 0
    again = h.commit_in_transaction({A: 5})
    asker.asked[1][1]({})
    assert again.result == {A: Errors.NONE}


@pytest.mark.parametrize("error", [Errors.NONE, Errors.INVALID_TXN_STATE])
def test_offsets_of_a_transaction_that_this_broker_coordinates_are_answered_at_once(
    error: Errors, h: Transactions, tmp_path
) -> None:
    asker = Asker()
    asker.known = {TopicPartition("__consumer_offsets", 0): error} if error else {}
    h.coordinator.transactions.verification = verification_over(tmp_path, asker)
    assert h.commit_in_transaction({A: 5}).result == {A: error}
    assert not asker.asked
