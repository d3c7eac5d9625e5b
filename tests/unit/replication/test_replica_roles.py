"""Around one broker's replicas: producers that wait for an ISR, followers for records, a broker that stops."""

from __future__ import annotations

import sys
import threading
import uuid
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from broker.cluster.isr import IsrState
from broker.network.request_channel import ConnectionInfo
from broker.protocol.control_messages import MetadataUpdate, PartitionRole, StopState
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.fetcher import ReplicaFetcher
from broker.replication.leadership import UntoldError
from broker.server.apis.current_leaders import CurrentLeaders
from broker.server.apis.inter_broker import leader_and_isr, update_metadata
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.stress.lock_graph import LockGraph
from tests.stress.lock_sites import lock_sites
from tests.stress.lock_table import written_order
from tests.stress.traced import held_here, traced_locks
from tests.support.replica_world import LONG_MS, ME, OTHER, THIRD, TOPIC_ID, Broker, state, tp


@pytest.fixture
def broker(tmp_path: Path):
    made = Broker(tmp_path)
    yield made
    made.close()


class AnsweredFreely:
    """Two partitions that are led here, and requests that wait for both; ``held`` has the locks that were
    held as each was answered, by who it was.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.held: dict[str, list[str]] = {}
        broker.leadership.apply(1, [state(number, ME, 1, (ME, OTHER)) for number in (0, 1)])

    def _heard(self, who: str) -> None:
        self.held[who] = held_here()

    def producer_waits(self, who: str, number: int) -> None:
        self._broker.replicas.append_records(
            timeout_ms=LONG_MS,
            required_acks=-1,
            entries={tp(number): memoryview(bytearray(build_batch([Record(None, b"v")])))},
            callback=lambda _: self._heard(who),
        )

    def reader_waits(self, who: str, number: int, replica_id: int, offset: int) -> None:
        entry = FetchEntry(tp(number), TOPIC_ID, offset, 1 << 20, 1)
        self._broker.replicas.fetch(
            FetchParams(replica_id, 5, LONG_MS, 1, 1 << 20), [entry], lambda _: self._heard(who)
        )


@pytest.fixture
def answered_freely(tmp_path: Path):
    graph = LockGraph(written_order())
    with traced_locks(lock_sites(), graph):
        broker = Broker(tmp_path)
        yield AnsweredFreely(broker), broker
        broker.close()
    assert not graph.problems, graph.problems[0]


def test_an_answer_that_makes_others_true_is_given_with_no_lock_held(answered_freely) -> None:
    """A follower's waiting fetch is read anew as it is answered, and what it says moves the mark others wait for."""
    answered, broker = answered_freely
    answered.producer_waits("producer", 0)
    answered.reader_waits("consumer", 0, -1, 0)
    answered.reader_waits("follower", 0, OTHER, 1)
    assert answered.held == {"producer": [], "consumer": []}
    answered.producer_waits("second producer", 0)
    assert answered.held.pop("follower") == []
    broker.fetched_by(OTHER, 0, 2, 1)
    assert answered.held == {"producer": [], "consumer": [], "second producer": []}


@pytest.mark.parametrize("way", ["deleted", "stopped", "made a follower", "its directory failed"])
def test_who_waits_for_a_partition_that_goes_is_answered_with_no_lock_held(answered_freely, way: str) -> None:
    answered, broker = answered_freely
    answered.producer_waits("producer", 0)
    answered.reader_waits("consumer", 0, -1, 0)
    answered.reader_waits("follower", 0, OTHER, 1)
    if way == "made a follower":
        broker.leadership.apply(1, [state(0, OTHER, 2, (ME, OTHER))])
    elif way == "its directory failed":
        broker.leadership.take_offline([tp(0)])
    else:
        broker.leadership.stop(1, [StopState(tp(0), 1, delete=way == "deleted")])
    assert answered.held == {"producer": [], "consumer": [], "follower": []}


def test_producer_that_waited_for_a_refused_member_is_answered_at_the_refusal(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    broker.fetched_by(THIRD, 0, 0, 1)
    (change,) = broker.changes
    answers = broker.produce(0)
    broker.fetched_by(OTHER, 0, 1, 1)
    broker.cluster.dead.add(THIRD)
    broker.replicas.on_brokers_changed()
    assert answers == [], "the third may be a member by now"
    assert not broker.replicas.on_isr_refused(change, Errors.INELIGIBLE_REPLICA)
    assert [answer.error for answer in answers] == [Errors.NONE]


def test_too_small_an_isr_is_told_to_the_producer_and_once_a_second_to_the_operator(
    broker: Broker, capsys
) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME,))])
    for _ in range(50):
        (answer,) = broker.produce(0)
        assert answer.error is Errors.NOT_ENOUGH_REPLICAS
        assert answer.message == (
            "orders-0: 1 of 3 replicas are in sync (ISR [1], missing [2, 3]), "
            "acks=all needs 2 (min.insync.replicas)"
        )
    lines = [line for line in capsys.readouterr().out.splitlines() if "not_enough_replicas" in line]
    assert 1 <= len(lines) < 25
    assert "missing=[2, 3]" in lines[0]
    assert "min_insync_replicas=2" in lines[0]


def test_an_isr_that_shrinks_after_the_append_is_told_to_the_producer(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    answers = broker.produce(0)
    partition = broker.replicas.partition(tp(0))
    partition.isr = IsrState(frozenset({ME}))
    partition.log.high_watermark = 1
    broker.replicas.wake(tp(0))
    (answer,) = answers
    assert answer.error is Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert "1 of 3 replicas are in sync (ISR [1], missing [2, 3])" in answer.message


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [
        ("nul\0", 0, Errors.INVALID_TOPIC_EXCEPTION),
        ("../up", 0, Errors.INVALID_TOPIC_EXCEPTION),
        ("", 0, Errors.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 0, Errors.INVALID_TOPIC_EXCEPTION),
        ("orders", -1, Errors.INVALID_PARTITIONS),
    ],
)
@pytest.mark.parametrize("leader", [ME, OTHER])
def test_no_directory_is_made_of_what_is_no_partitions_name(
    broker: Broker, tmp_path: Path, topic: str, partition: int, error: Errors, leader: int
) -> None:
    before = sorted(tmp_path.rglob("*"))
    odd = TopicPartition(topic, partition)
    asked = state(0, leader, 1, (ME, OTHER))._replace(topic_partition=odd)
    assert broker.leadership.apply(1, [asked]) == {odd: error}
    assert sorted(tmp_path.rglob("*")) == before


def test_a_turns_appends_reach_a_waiting_follower_with_one_answer(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    broker.replicas.settle()  # this thread is a Processor's from now on
    waits = FetchParams(OTHER, 5, LONG_MS, 1, 1 << 20)
    entry = FetchEntry(tp(0), TOPIC_ID, 0, 1 << 20, 1)
    fetched: list[int] = []
    broker.replicas.fetch(waits, [entry], lambda found: fetched.append(found[0][1].records.size))
    answers = [broker.produce(0), broker.produce(0)]
    assert fetched == []
    broker.replicas.settle()
    assert fetched == [broker.replicas.partition(tp(0)).log.size_bytes]
    broker.fetched_by(OTHER, 0, 2, 1)
    assert answers == [[], []]
    broker.replicas.settle()
    assert [answer.error for (answer,) in answers] == [Errors.NONE, Errors.NONE]


def test_fetch_that_waits_is_sent_anew_when_a_partition_is_added(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, OTHER, 1, (OTHER, ME))])
    assert broker.asked.get(timeout=60) == [0]
    broker.leadership.apply(1, [state(1, OTHER, 1, (OTHER, ME)), state(2, OTHER, 1, (OTHER, ME))])
    assert broker.asked.get(timeout=60) == [0, 1, 2]


def test_a_broker_that_stops_does_not_follow_what_it_was_taken_out_of(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER)), state(1, ME, 1, (ME, OTHER))])
    broker.leadership.begin_stopping()
    broker.leadership.apply(1, [state(0, OTHER, 2, (OTHER, THIRD)), state(1, OTHER, 2, (OTHER, ME))])
    assert broker.asked.get(timeout=60) == [1]
    assert not broker.replicas.partition(tp(0)).is_leader
    wait_until(lambda: broker.fetchers.partition_count == 1)


NEW_TOPIC_ID = uuid.UUID(int=10)


def of_new_topic(number: int, leader: int) -> PartitionRole:
    return state(number, leader, 0, (ME, OTHER))._replace(topic_id=NEW_TOPIC_ID)


def test_a_replica_of_a_topic_that_is_no_more_gives_place_to_the_new_topics(broker: Broker) -> None:
    """It led in a later epoch, of which the new topic's leader knows nothing."""
    broker.leadership.apply(1, [state(0, ME, 7, (ME,)), state(1, OTHER, 7, (OTHER, ME))])
    broker.produce(0)
    assert broker.asked.get(timeout=60) == [1]
    broker.present_topic_id = NEW_TOPIC_ID
    results = broker.leadership.apply(2, [of_new_topic(0, ME), of_new_topic(1, ME)])
    assert set(results.values()) == {Errors.NONE}
    for number in (0, 1):
        partition = broker.replicas.partition(tp(number))
        assert partition.is_leader
        assert partition.topic_id == NEW_TOPIC_ID
        assert partition.log.topic_id == NEW_TOPIC_ID
        assert partition.log.log_end_offset == 0
    assert broker.resigned[-2:] == [(tp(0), None), (tp(1), None)]
    assert broker.fetchers.partition_count == 0


def test_a_log_of_a_topic_that_is_no_more_gives_place_to_the_new_topics(broker: Broker) -> None:
    """It was found at the start, and nobody has spoken of it since."""
    broker.logs.get_or_create(tp(0), TOPIC_ID)
    broker.present_topic_id = NEW_TOPIC_ID
    assert broker.leadership.apply(2, [of_new_topic(0, ME)]) == {tp(0): Errors.NONE}
    assert broker.replicas.partition(tp(0)).log.topic_id == NEW_TOPIC_ID


@pytest.mark.parametrize("present", [TOPIC_ID, None, uuid.UUID(int=11)])
def test_a_replica_is_not_deleted_on_a_controllers_word_alone(
    broker: Broker, present: uuid.UUID | None
) -> None:
    broker.leadership.apply(1, [state(0, ME, 7, (ME, OTHER))])
    broker.logs.get_or_create(tp(1), TOPIC_ID)
    broker.produce(0)
    broker.present_topic_id = present
    results = broker.leadership.apply(2, [of_new_topic(0, ME), of_new_topic(1, ME)])
    assert set(results.values()) == {Errors.INCONSISTENT_TOPIC_ID}
    assert broker.replicas.partition(tp(0)).state.leader_epoch == 7
    assert broker.logs.get(tp(0)).log_end_offset == 1
    assert broker.logs.get(tp(1)).topic_id == TOPIC_ID


def test_an_order_that_hangs_on_an_answer_of_the_store_is_carried_out_once_it_comes(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 7, (ME, OTHER))])
    other = TopicPartition("payments", 0)
    order = [of_new_topic(0, ME), state(0, ME, 1, (ME,))._replace(topic_partition=other, topic_id=None)]
    broker.present_topic_id, broker.store_fails = NEW_TOPIC_ID, True
    with pytest.raises(UntoldError, match="orders: no answer"):
        broker.leadership.apply(2, order)
    assert broker.replicas.partition(other).is_leader
    assert broker.replicas.partition(tp(0)).state.leader_epoch == 7
    broker.store_fails = False
    assert broker.leadership.apply(2, order)[tp(0)] is Errors.NONE
    assert broker.replicas.partition(tp(0)).topic_id == NEW_TOPIC_ID


def test_a_controller_gives_an_order_again_until_the_store_has_said_what_decides(broker: Broker) -> None:
    """What it is answered it never says again, so it gets no answer as long as none can be given."""
    broker.leadership.apply(1, [state(0, ME, 7, (ME, OTHER))])
    broker.present_topic_id, broker.store_fails = NEW_TOPIC_ID, True
    new = of_new_topic(0, ME)
    row = SimpleNamespace(
        partition_index=0, controller_epoch=2, leader=ME, leader_epoch=0, isr=[ME], partition_epoch=0,
        replicas=[ME, OTHER], is_new=True,
    )  # fmt: skip
    topic = SimpleNamespace(topic_name="orders", topic_id=new.topic_id, partition_states=[row])
    order = SimpleNamespace(controller_id=0, controller_epoch=2, topic_states=[topic], broker_epoch=1)
    context = SimpleNamespace(leadership=broker.leadership, broker_epoch=lambda: 1)
    closed: list[bool] = []
    request = SimpleNamespace(close_connection=lambda: closed.append(True))
    for _ in range(3):
        assert leader_and_isr(request, order, context) is None
    assert len(closed) == 3
    broker.store_fails = False
    answer = leader_and_isr(request, order, context)
    assert [row["error_code"] for row in answer["partition_errors"]] == [Errors.NONE]
    assert len(closed) == 3


def test_a_broker_that_starts_knows_which_controllers_were_replaced_before(broker: Broker) -> None:
    broker.logs.get_or_create(tp(0), TOPIC_ID)
    broker.leadership.expect_controller(5)
    deletion = StopState(tp(0), -2, delete=True)
    with pytest.raises(KafkaError) as refused:
        broker.leadership.stop(4, [deletion])
    assert refused.value.error_code is Errors.STALE_CONTROLLER_EPOCH
    broker.leadership.expect_controller(3)
    with pytest.raises(KafkaError):
        broker.leadership.apply(4, [state(0, ME, 7, (ME, OTHER))])
    assert broker.logs.get(tp(0)) is not None
    assert broker.leadership.stop(5, [deletion]) == {tp(0): Errors.NONE}


def test_who_is_told_of_another_leader_is_told_the_epoch_of_that_leader(broker: Broker) -> None:
    """Whoever asks, without the partition's lock, at whatever moment of the change."""
    broker.leadership.apply(1, [state(0, OTHER, 7, (ME, OTHER))])
    partition = broker.replicas.partition(tp(0))
    told: set[tuple[int, int] | None] = set()

    request: Any = SimpleNamespace(connection=ConnectionInfo("1", "10.0.0.1", "OUT"))
    asked: Any = SimpleNamespace(replica_manager=broker.replicas, metadata_cache=MetadataCache("IN"))

    def ask() -> None:
        told.add(CurrentLeaders(request, asked).of(tp(0)))

    def between_lines(frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename != partition.make_follower.__code__.co_filename:
            return None
        ask()
        return between_lines

    tracing = sys.gettrace()
    sys.settrace(between_lines)
    try:
        partition.make_follower(state(0, THIRD, 8, (ME, THIRD)))
    finally:
        sys.settrace(tracing)
    ask()
    assert told == {(OTHER, 7), (THIRD, 8)}


class SlowCache:
    """MetadataCache's interface; an update of controller 5 is not at its end before another has come, or may not."""

    def __init__(self) -> None:
        self.controllers: list[int] = []
        self.another = threading.Event()

    def alive_broker_ids(self) -> list[int]:
        return [ME]

    def update(self, update: MetadataUpdate) -> list[TopicPartition]:
        if update.controller_id == 5:
            self.another.wait(0.3)
        self.controllers.append(update.controller_id)
        self.another.set()
        return []


def test_metadata_of_a_replaced_controller_is_not_taken_after_its_successors(broker: Broker) -> None:
    cache = SlowCache()
    ctx = SimpleNamespace(leadership=broker.leadership, metadata_cache=cache, broker_epoch=lambda: 1)
    request = SimpleNamespace(connection=SimpleNamespace(listener_name="PLAINTEXT"))

    def metadata_of(epoch: int) -> int:
        message = SimpleNamespace(
            controller_id=epoch, controller_epoch=epoch, broker_epoch=1, live_brokers=(), topic_states=()
        )
        return update_metadata(request, message, ctx)["error_code"]

    older = threading.Thread(target=metadata_of, args=(5,))
    older.start()
    wait_until(lambda: broker.leadership.controller_epoch == 5)
    assert metadata_of(6) is Errors.NONE
    older.join()
    assert cache.controllers == [5, 6]
    assert broker.leadership.controller_epoch == 6
    assert metadata_of(5) is Errors.STALE_CONTROLLER_EPOCH


def fail_once(monkeypatch, target: object, name: str) -> None:
    """As where no thread can be started."""
    method = getattr(target, name)

    def fail(*_args: object) -> None:
        monkeypatch.setattr(target, name, method)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(target, name, fail)


@pytest.mark.parametrize("part", ["fetcher", "listener"])
def test_a_request_that_broke_off_is_carried_out_when_it_is_sent_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A controller repeats what was not answered, with the same leader epochs."""
    told: list[TopicPartition] = []
    listener = SimpleNamespace(
        on_leader=lambda partition, _: told.append(partition), on_follower=lambda *_: None
    )
    monkeypatch.setattr(broker.leadership, "_listener", listener)
    if part == "fetcher":
        fail_once(monkeypatch, ReplicaFetcher, "start")
    else:
        fail_once(monkeypatch, listener, "on_leader")
    roles = [state(0, ME, 1, (ME, OTHER)), state(1, OTHER, 1, (ME, OTHER))]
    with pytest.raises(RuntimeError):
        broker.leadership.apply(1, roles)
    assert broker.leadership.apply(1, roles) == {tp(0): Errors.NONE, tp(1): Errors.NONE}
    assert told == [tp(0)]
    assert broker.replicas.partition(tp(0)).is_leader
    wait_until(lambda: broker.asked.get(timeout=30) == [1])


def test_a_request_that_broke_off_takes_no_later_role_away(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [state(0, ME, 2, (ME, OTHER))]

    def overtaken(*_: object) -> None:
        monkeypatch.undo()
        broker.leadership.apply(1, later)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(broker.leadership, "_tell", overtaken)
    with pytest.raises(RuntimeError):
        broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    assert broker.replicas.partition(tp(0)).is_leader
    assert broker.replicas.partition(tp(0)).state == later[0]
