"""Deleting records: the leader's log start moves, and the answer waits for the followers' logs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors
from broker.protocol.offsets import HIGH_WATERMARK
from broker.record.batch import Record, build_batch
from broker.replication.delayed_delete_records import DeletedRecords
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.session_news import SessionNews
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.replica_world import LONG_MS, ME, OTHER, THIRD, TOPIC_ID, Broker, state, tp

PARTITION = tp(0)
RECORDS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """It leads a partition with three committed records."""
    made = Broker(tmp_path)
    made.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    for _ in range(RECORDS):
        made.produce(0)
    fetched(made, OTHER, RECORDS, log_start=0)
    made.cluster.dead = {THIRD}
    assert log(made).high_watermark == RECORDS
    yield made
    made.close()


def log(broker: Broker):
    return broker.replicas.partition(PARTITION).log


def fetched(broker: Broker, follower: int, offset: int, *, log_start: int) -> None:
    entry = FetchEntry(PARTITION, TOPIC_ID, offset, 1 << 20, 1, log_start_offset=log_start)
    broker.replicas.fetch(FetchParams(follower, 5, 0, 1, 1 << 20), [entry], lambda _: None)


def delete(broker: Broker, offset: int, timeout_ms: int = LONG_MS) -> list[DeletedRecords]:
    """The list gets the result when it is answered."""
    answers: list[DeletedRecords] = []

    def answer(found: Mapping[TopicPartition, DeletedRecords]) -> None:
        answers.append(found[PARTITION])

    broker.replicas.delete_records({PARTITION: offset}, timeout_ms, answer)
    return answers


def test_a_deletion_is_answered_when_the_live_followers_have_moved_their_logs_too(broker: Broker) -> None:
    answers = delete(broker, 2)
    assert log(broker).log_start_offset == 2
    fetched(broker, OTHER, RECORDS, log_start=0)
    assert answers == []
    fetched(broker, OTHER, RECORDS, log_start=2)
    assert answers == [DeletedRecords(2, Errors.NONE)]


def test_the_answer_tells_how_far_all_replicas_are(broker: Broker) -> None:
    delete(broker, 2)
    fetched(broker, OTHER, RECORDS, log_start=2)
    assert delete(broker, 1) == [DeletedRecords(2, Errors.NONE)]


def test_a_follower_that_dies_is_not_waited_for(broker: Broker) -> None:
    answers = delete(broker, 2)
    broker.cluster.dead.add(OTHER)
    broker.replicas.on_brokers_changed()
    assert answers == [DeletedRecords(2, Errors.NONE)]


def test_a_follower_that_does_not_move_makes_it_time_out(broker: Broker) -> None:
    answers = delete(broker, 2, timeout_ms=20)
    wait_until(lambda: bool(answers))
    assert answers == [DeletedRecords(0, Errors.REQUEST_TIMED_OUT)]
    assert log(broker).log_start_offset == 2


def test_each_partition_is_told_of_for_itself_at_the_time_out_and_looked_at_once_before(
    broker: Broker,
) -> None:
    numbers = range(1, 21)
    broker.leadership.apply(1, [state(number, ME, 1, (ME, OTHER)) for number in numbers])
    for number in numbers:
        broker.produce(number)
        broker.fetched_by(OTHER, number, 1, 1)
    looks: list[int] = []
    for number in numbers:
        partition = broker.replicas.partition(tp(number))
        partition.low_watermark = partial(looked_at, looks, number, partition.low_watermark)
    answers: list[Mapping[TopicPartition, DeletedRecords]] = []
    broker.replicas.delete_records(dict.fromkeys(map(tp, numbers), 1), LONG_MS, answers.append)
    looks.clear()
    for number in reversed(numbers):
        entry = FetchEntry(tp(number), TOPIC_ID, 1, 1 << 20, 1, log_start_offset=1 if number > 1 else 0)
        broker.replicas.fetch(FetchParams(OTHER, 5, 0, 1, 1 << 20), [entry], lambda _: None)
    assert answers == []
    assert set(looks) == {1}
    (waiting,) = broker.replicas.delete_records_purgatory.cancel_for_key(tp(1))
    waiting.force_complete()
    (answer,) = answers
    assert answer[tp(1)].error is Errors.REQUEST_TIMED_OUT
    assert {answer[tp(number)] for number in numbers if number > 1} == {DeletedRecords(1, Errors.NONE)}


def looked_at(looks: list[int], number: int, look: Callable[[], int]) -> int:
    looks.append(number)
    return look()


def test_minus_one_deletes_up_to_the_high_watermark(broker: Broker) -> None:
    broker.produce(0)
    delete(broker, HIGH_WATERMARK)
    assert (log(broker).log_start_offset, log(broker).log_end_offset) == (RECORDS, RECORDS + 1)


@pytest.mark.parametrize("offset", [RECORDS + 1, -2])
def test_what_is_not_committed_is_not_deleted(broker: Broker, offset: int) -> None:
    assert delete(broker, offset) == [DeletedRecords(-1, Errors.OFFSET_OUT_OF_RANGE)]
    assert log(broker).log_start_offset == 0


@pytest.mark.parametrize(
    ("policy", "error"),
    [({"compact"}, Errors.POLICY_VIOLATION), ({"compact", "delete"}, Errors.NONE)],
)
def test_the_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    broker: Broker, policy: set[str], error: Errors
) -> None:
    log(broker).update_config(replace(log(broker).config, cleanup_policy=frozenset(policy)))
    broker.cluster.dead.add(OTHER)
    assert [answer.error for answer in delete(broker, 1)] == [error]


def test_a_broker_that_no_longer_leads_says_so_to_those_that_wait(broker: Broker) -> None:
    answers = delete(broker, 2)
    broker.leadership.apply(1, [state(0, OTHER, 2, (ME, OTHER))])
    assert answers == [DeletedRecords(-1, Errors.NOT_LEADER_OR_FOLLOWER)]
    assert delete(broker, 2) == answers


def test_internal_topics_keep_their_records(broker: Broker) -> None:
    offsets = TopicPartition("__consumer_offsets", 0)
    broker.leadership.apply(1, [PartitionRole(offsets, uuid.UUID(int=3), 1, ME, 1, (ME,), 1, (ME,))])
    answers: list[Mapping[TopicPartition, DeletedRecords]] = []
    broker.replicas.delete_records({offsets: 0}, LONG_MS, answers.append)
    assert answers == [{offsets: DeletedRecords(-1, Errors.INVALID_TOPIC_EXCEPTION)}]


def test_a_consumer_does_not_get_deleted_records(broker: Broker) -> None:
    delete(broker, 2)
    entries = [FetchEntry(PARTITION, uuid.UUID(int=0), offset, 1 << 20) for offset in (1, 2)]
    fetched, size, _ = broker.replicas.reader.read(FetchParams(-1, -1, 0, 1, 1 << 20), entries)
    assert [each.error for _, each in fetched] == [Errors.OFFSET_OUT_OF_RANGE, Errors.NONE]
    assert size > 0


def test_a_follower_that_waits_in_a_session_learns_of_it_with_its_next_answer(broker: Broker) -> None:
    news = SessionNews()
    entry = FetchEntry(PARTITION, TOPIC_ID, RECORDS, 1 << 20, 1, log_start_offset=0)
    broker.replicas.news_board.follow(news, entry)
    delete(broker, 2)
    assert list(news.take()) == [entry]


def test_a_new_follower_copies_a_log_that_begins_within_a_batch(broker: Broker) -> None:
    """Its log is empty and begins where the leader's does."""
    broker.leadership.apply(1, [state(1, OTHER, 1, (ME, OTHER))])
    follower = broker.replicas.partition(tp(1))
    follower.reset_as_follower(1, 2, 5, (), last_unknown=False)
    records = [Record(None, b"v") for _ in range(5)]
    batch = memoryview(bytearray(build_batch(records, leader_epoch=1)))
    follower.append_as_follower(batch, 1, 5, 2)
    offsets = follower.log.offsets
    assert (offsets.start, offsets.high_watermark, offsets.end) == (2, 5, 5)


def test_the_new_start_is_known_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    delete(broker, 2)
    broker.logs.shutdown()
    again = LogManager([str(tmp_path)], LogConfig())
    again.startup()
    found = again.get(PARTITION)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (2, RECORDS)
    again.shutdown()
