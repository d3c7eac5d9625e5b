"""Reassignments take Kafka's phases, lose nothing wherever the controller dies, and can be overridden and cancelled."""

from __future__ import annotations

import pytest

from broker.controller.elections import ElectionType
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.admin_requests import REASSIGN_PARTITIONS, encode_reassignment
from broker.zookeeper.store import SessionExpiredError, TooLargeError
from tests.support.fake_brokers import FakeBrokers, Recorded
from tests.support.term_world import TermWorld

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
# Broker 0 is the controller and has no replicas.
RACKS = dict.fromkeys(range(5), None)


class Watchful(FakeBrokers):
    """Looks at the store whenever a broker is told to delete a replica, or to have one."""

    world: TermWorld

    def record(self, recorded: Recorded) -> None:
        super().record(recorded)
        if recorded.api is ApiKey.STOP_REPLICA:
            for topic in recorded.message.topic_states:
                for row in topic.partition_states:
                    if row.delete_partition:
                        self._may_delete(
                            recorded.broker_id, TopicPartition(topic.topic_name, row.partition_index)
                        )
        if recorded.api is ApiKey.LEADER_AND_ISR:
            for topic in recorded.message.topic_states:
                for row in topic.partition_states:
                    named = self.world.assignment(topic.topic_name).partitions[row.partition_index]
                    assert recorded.broker_id in named, "a replica that no later controller would know of"

    def _may_delete(self, broker_id: int, partition: TopicPartition) -> None:
        state = self.world.state(partition)
        assert broker_id not in state.isr
        assert broker_id != state.leader
        assert set(state.isr) & set(self.world.cluster.brokers()), "nobody is left who has everything"


@pytest.fixture
def world() -> TermWorld:
    brokers = Watchful()
    made = TermWorld(RACKS, brokers)
    brokers.world = made
    return made


def move(world: TermWorld, *wish: int, partition: TopicPartition = T0) -> int:
    return int(world.ask_to_move({partition: wish})[partition])


def test_the_topics_znode_names_old_and_new_replicas_until_the_new_are_in_sync(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    epoch = world.state(T0).leader_epoch
    assert move(world, 3, 2) == Errors.NONE
    assignment = world.assignment("t")
    assert assignment.partitions[0] == (3, 2, 1)
    assert (assignment.adding_replicas, assignment.removing_replicas) == ({0: (3,)}, {0: (1,)})
    assert world.state(T0).leader_epoch == epoch + 1
    told = {broker_id: world.brokers.leader_and_isr(broker_id, T0) for broker_id in (1, 2, 3)}
    for row in told.values():
        assert (row.leader, row.leader_epoch) == (1, epoch + 1)
        assert tuple(row.replicas) == (3, 2, 1)
        assert (tuple(row.adding_replicas), tuple(row.removing_replicas)) == ((3,), (1,))
    assert {broker_id: row.is_new for broker_id, row in told.items()} == {1: False, 2: False, 3: True}
    assert world.moving() == {T0: ((3, 2, 1), (3,), (1,))}
    assert world.brokers.stopped(1, T0) is None


def test_when_the_target_is_in_sync_one_of_it_leads_and_the_rest_is_deleted(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 2)
    world.brokers.clear()
    assert world.alter_isr(T0, (1, 2, 3)) == Errors.NONE
    state, assignment = world.state(T0), world.assignment("t")
    assert (state.leader, state.isr) == (3, (2, 3))
    assert (assignment.partitions, assignment.adding_replicas, assignment.removing_replicas) == (
        {0: (3, 2)},
        {},
        {},
    )
    assert world.brokers.stopped(1, T0).delete_partition
    assert world.brokers.leader_and_isr(1, T0) is None
    for broker_id in (2, 3):
        told = world.brokers.leader_and_isr(broker_id, T0)
        assert (told.leader, told.leader_epoch, tuple(told.replicas)) == (3, state.leader_epoch, (3, 2))
    for broker_id in RACKS:
        assert tuple(world.brokers.metadata(broker_id, T0).replicas) == (3, 2)
    assert world.moving() == {}


def test_a_leader_that_stays_a_replica_keeps_leading(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 1)
    world.grow_isrs()
    state = world.state(T0)
    assert (state.leader, set(state.isr)) == (1, {1, 3})
    assert world.brokers.leader_and_isr(1, T0).leader_epoch == state.leader_epoch


def test_a_new_order_of_the_same_replicas_takes_one_step(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    assert move(world, 2, 1) == Errors.NONE
    assert world.assignment("t").partitions == {0: (2, 1)}
    assert world.moving() == {}
    assert world.state(T0).leader == 1
    assert tuple(world.brokers.leader_and_isr(1, T0).replicas) == (2, 1)
    assert world.brokers.requests(ApiKey.STOP_REPLICA) == []


def test_replicas_may_be_added_and_taken_away(world):
    world.elect()
    world.create("t", {0: (1,)})
    move(world, 1, 2, 3)
    assert world.moving() == {T0: ((1, 2, 3), (2, 3), ())}
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (1, 2, 3)}
    move(world, 1)
    assert world.assignment("t").partitions == {0: (1,)}
    assert world.state(T0).isr == (1,)
    for broker_id in (2, 3):
        assert world.brokers.stopped(broker_id, T0).delete_partition


def test_one_target_replica_that_is_not_in_sync_holds_everything_up(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 4)
    world.alter_isr(T0, (1, 2, 3))
    assert world.moving() == {T0: ((3, 4, 1, 2), (3, 4), (1, 2))}
    assert world.brokers.requests(ApiKey.STOP_REPLICA) == []
    world.alter_isr(T0, (1, 2, 3, 4))
    assert world.moving() == {}
    assert set(world.state(T0).isr) == {3, 4}


def test_cancelled_before_the_end_it_is_as_if_nothing_had_been(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 4)
    world.alter_isr(T0, (1, 2, 3))
    assert world.ask_to_move({T0: None}) == {T0: Errors.NONE}
    assert world.assignment("t").partitions == {0: (1, 2)}
    state = world.state(T0)
    assert (state.leader, state.isr) == (1, (1, 2))
    for broker_id in (3, 4):
        assert world.brokers.stopped(broker_id, T0).delete_partition
    assert tuple(world.brokers.leader_and_isr(1, T0).replicas) == (1, 2)
    assert world.moving() == {}
    assert world.ask_to_move({T0: None}) == {T0: Errors.NO_REASSIGNMENT_IN_PROGRESS}


def test_another_wish_overrides_the_one_under_way(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 2)
    assert move(world, 4, 2) == Errors.NONE
    assert world.moving() == {T0: ((4, 2, 1), (4,), (1,))}
    assert world.brokers.stopped(3, T0).delete_partition
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (4, 2)}
    assert world.state(T0).leader == 4


def test_an_override_that_drops_the_leader_elects_another_first(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 4)
    world.alter_isr(T0, (1, 2, 3))
    world.term.elections.elect(ElectionType.PREFERRED, [T0])
    assert world.state(T0).leader == 3
    assert move(world, 4, 2) == Errors.NONE
    state = world.state(T0)
    assert (state.leader, state.isr) == (2, (1, 2))
    assert world.brokers.stopped(3, T0).delete_partition


def test_the_only_live_replica_in_sync_is_not_dropped(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 4)
    world.alter_isr(T0, (1, 2, 3))
    world.leave(2)
    world.leave(1)
    assert (world.state(T0).leader, world.state(T0).isr) == (3, (3,))
    assert world.ask_to_move({T0: None}) == {T0: Errors.INVALID_REPLICA_ASSIGNMENT}
    assert move(world, 4, 2) == Errors.INVALID_REPLICA_ASSIGNMENT
    assert world.state(T0).leader == 3
    assert set(world.moving()) == {T0}
    world.join(1)
    world.alter_isr(T0, (3, 1))
    assert world.ask_to_move({T0: None}) == {T0: Errors.NONE}
    assert (world.state(T0).leader, world.state(T0).isr) == (1, (1,))


def test_wishes_are_refused_with_kafkas_codes(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    unknown = TopicPartition("t", 7)
    before = world.assignment("t"), world.state(T0)
    assert move(world) == Errors.INVALID_REPLICA_ASSIGNMENT
    assert move(world, 1, 1) == Errors.INVALID_REPLICA_ASSIGNMENT
    assert move(world, -1, 2) == Errors.INVALID_REPLICA_ASSIGNMENT
    assert move(world, 9, 2) == Errors.INVALID_REPLICA_ASSIGNMENT
    assert move(world, 1, 2, partition=unknown) == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert world.ask_to_move({T0: None}) == {T0: Errors.NO_REASSIGNMENT_IN_PROGRESS}
    assert world.ask_to_move({unknown: None}) == {unknown: Errors.NO_REASSIGNMENT_IN_PROGRESS}
    assert (world.assignment("t"), world.state(T0)) == before


def test_what_a_request_names_twice_is_answered_once(world):
    world.elect()
    world.create("t", {0: (1, 2), 1: (1, 2)})
    cancelled = [(0, 0), (1,), ()]
    topics = [
        {"name": "t", "partitions": [{"partition_index": index, "replicas": None} for index in indexes]}
        for indexes in cancelled
    ]
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    request = codec.encode(key, 0, "request", {"topics": [*topics, {"name": "u", "partitions": []}]})
    answer = world.term.reassignment_requests.alter(codec.decode(key, 0, "request", request))
    (topic,) = answer["responses"]
    assert topic["name"] == "t"
    assert [row["partition_index"] for row in topic["partitions"]] == [0, 1]


def test_a_broker_that_shuts_down_is_no_target(world):
    term = world.elect()
    world.create("t", {0: (1, 2)})
    term.context.shutting_down.add(3)
    assert move(world, 3, 2) == Errors.INVALID_REPLICA_ASSIGNMENT


def test_many_partitions_move_together(world):
    world.elect()
    world.create("t", {0: (1, 2), 1: (2, 1)})
    world.brokers.clear()
    assert set(world.ask_to_move({T0: (3, 4), T1: (4, 3)}).values()) == {Errors.NONE}
    (request,) = world.brokers.requests(ApiKey.LEADER_AND_ISR, 3)
    assert len(request.message.topic_states[0].partition_states) == 2
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (3, 4), 1: (4, 3)}


def test_moves_whose_replicas_come_into_sync_together_are_finished_by_one_request_a_broker(world):
    world.elect()
    world.create("t", dict.fromkeys(range(6), (1, 2)))
    world.ask_to_move({TopicPartition("t", number): (3, 2) for number in range(6)})
    world.brokers.clear()
    for number in range(6):
        world.alter_isr(TopicPartition("t", number), (1, 2, 3), run=False)
    world.run()
    assert world.moving() == {}
    deletions = [
        len(topic.partition_states)
        for recorded in world.brokers.requests(ApiKey.STOP_REPLICA, 1)
        for topic in recorded.message.topic_states
        if topic.partition_states[0].delete_partition
    ]
    assert deletions == [6]


def test_a_target_that_is_away_is_waited_for_and_told_when_it_is_back(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 2)
    world.leave(3)
    world.brokers.clear()
    world.join(3)
    told = world.brokers.leader_and_isr(3, T0)
    assert tuple(told.replicas) == (3, 2, 1)
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (3, 2)}


def test_a_partition_that_never_had_a_leader_gets_one_from_its_new_replicas(world):
    world.elect()
    world.create("t", {0: (9,)})
    assert move(world, 3) == Errors.NONE
    state = world.state(T0)
    assert (state.leader, state.isr) == (3, (3,))
    assert world.assignment("t").partitions == {0: (3,)}


def test_partitions_that_are_added_during_a_move_are_kept(world):
    from dataclasses import replace

    world.elect()
    world.create("t", {0: (1, 2)})
    found = world.assignment("t")
    # TopicAdmin writes past the controller, which has not heard of it when it writes itself.
    world.cluster.set_topic_assignment("t", replace(found, partitions={0: (1, 2), 1: (2, 1)}))
    move(world, 3, 2)
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (3, 2), 1: (2, 1)}
    assert world.state(T1).leader == 2


def test_deleting_a_topic_that_moves_deletes_old_and_new_replicas(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    move(world, 3, 2)
    world.brokers.record = FakeBrokers.record.__get__(world.brokers)
    world.cluster.mark_topic_for_deletion("t")
    world.run()
    assert not world.cluster.topic_exists("t")
    for broker_id in (1, 2, 3):
        assert world.brokers.stopped(broker_id, T0).delete_partition


def test_the_old_tools_znode_is_heeded_and_goes_when_all_is_done(world):
    world.elect()
    world.create("t", {0: (1, 2), 1: (2, 1)})
    unknown = TopicPartition("nowhere", 0)
    wish = {T0: (3, 2), T1: (4, 1), unknown: (1,)}
    world.store.create(REASSIGN_PARTITIONS, encode_reassignment(wish))
    world.run()
    assert set(world.moving()) == {T0, T1}
    assert world.cluster.reassignment_request() == {T0: (3, 2), T1: (4, 1)}
    world.alter_isr(T0, (1, 2, 3))
    assert world.cluster.reassignment_request() == {T1: (4, 1)}
    world.alter_isr(T1, (2, 1, 4))
    assert world.cluster.reassignment_request() is None
    # The watch is still there.
    world.store.create(REASSIGN_PARTITIONS, encode_reassignment({T0: (1,)}))
    world.run()
    assert set(world.moving()) == {T0}


def test_a_dead_target_of_the_old_tools_is_told_when_it_first_comes(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    world.store.create(REASSIGN_PARTITIONS, encode_reassignment({T0: (9, 2)}))
    world.run()
    assert world.moving() == {T0: ((9, 2, 1), (9,), (1,))}
    world.join(9)
    assert tuple(world.brokers.leader_and_isr(9, T0).replicas) == (9, 2, 1)
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (9, 2)}


def test_a_wish_by_the_api_takes_the_place_of_the_old_tools(world):
    world.elect()
    world.create("t", {0: (1, 2)})
    world.store.create(REASSIGN_PARTITIONS, encode_reassignment({T0: (3, 2)}))
    world.run()
    move(world, 4, 2)
    assert world.cluster.reassignment_request() is None
    world.grow_isrs()
    assert world.assignment("t").partitions == {0: (4, 2)}


# -- the controller replaced at every step


def _story_of_a_move(world: TermWorld) -> None:
    """A move of two partitions with an override, up to the end."""
    world.ask_to_move({T0: (3, 2), T1: (3, 4)})
    world.grow_isrs()


def _story_of_an_override(world: TermWorld) -> None:
    world.ask_to_move({T0: (3, 4), T1: (4, 3)})
    world.alter_isr(T0, (1, 2, 3))
    world.ask_to_move({T0: (4, 2), T1: (1, 3)})
    world.grow_isrs()


def _story_of_a_cancellation(world: TermWorld) -> None:
    world.ask_to_move({T0: (3, 4), T1: (4, 3)})
    world.alter_isr(T0, (1, 2, 3))
    world.ask_to_move({T0: None, T1: None})


def _story_of_the_old_znode(world: TermWorld) -> None:
    world.store.create(REASSIGN_PARTITIONS, encode_reassignment({T0: (3, 2), T1: (3, 4)}))
    world.run()
    world.grow_isrs()


STORIES = [_story_of_a_move, _story_of_an_override, _story_of_a_cancellation, _story_of_the_old_znode]


def _writes_of(story) -> range:
    brokers = Watchful()
    world = brokers.world = TermWorld(RACKS, brokers)
    world.elect()
    world.create("t", {0: (1, 2), 1: (2, 1)})
    before = world.mortal.writes
    story(world)
    return range(before + 1, world.mortal.writes + 1)


@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.strip("_"))
def test_the_next_controller_finishes_what_the_last_one_began(world, story, after):
    writes = _writes_of(story)
    assert len(writes) > 5
    for deadly in writes:
        brokers = Watchful()
        world = brokers.world = TermWorld(RACKS, brokers)
        world.elect(deadly, after=after)
        world.create("t", {0: (1, 2), 1: (2, 1)})
        with pytest.raises(SessionExpiredError):
            story(world)
        world.elect()
        for _ in range(3):  # each growth may begin the next phase of another partition
            world.grow_isrs()
        assert world.moving() == {}, f"died at write {deadly}"
        _check_settled(world)


def test_moves_that_make_a_topics_znode_too_large_are_refused_and_the_others_begin(world, monkeypatch):
    """The term goes on: to begin it anew would meet the same znode."""
    world.elect()
    world.create("t", {0: (1, 2)})
    world.create("u", {0: (1, 2)})
    before = world.assignment("t")
    written = world.term.store.set_topic_assignment

    def bounded(topic, assignment):
        if topic == "t":
            raise TooLargeError("/brokers/topics/t: the request has 2000000 bytes")
        return written(topic, assignment)

    monkeypatch.setattr(world.term.store, "set_topic_assignment", bounded)
    u0 = TopicPartition("u", 0)
    answers = world.ask_to_move({T0: (3, 2), u0: (3, 2)})
    assert (answers[T0], answers[u0]) == (Errors.POLICY_VIOLATION, Errors.NONE)
    assert world.assignment("t") == before
    world.grow_isrs()
    assert world.assignment("u").partitions[0] == (3, 2)


def _last_was_a_deletion(world: TermWorld, broker_id: int, partition: TopicPartition) -> bool:
    told = [
        getattr(row, "delete_partition", False)
        for recorded in world.brokers.requests(broker_id=broker_id)
        if recorded.api in {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA}
        for topic in recorded.message.topic_states
        for row in topic.partition_states
        if (topic.topic_name, row.partition_index) == partition
    ]
    return bool(told[-1])


def _check_settled(world: TermWorld) -> None:
    """Every partition is whole: its replicas know of each other, and nobody else has one."""
    for partition in (T0, T1):
        replicas = world.assignment("t").partitions[partition.partition]
        state = world.state(partition)
        assert set(state.isr) == set(replicas)
        assert state.leader in replicas
        for broker_id in RACKS:
            told = world.brokers.leader_and_isr(broker_id, partition)
            if broker_id in replicas:
                assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch)
                assert set(told.replicas) == set(replicas)
                assert not told.adding_replicas
                assert not told.removing_replicas
            elif told is not None:
                assert _last_was_a_deletion(world, broker_id, partition), f"{broker_id} keeps {partition}"
            metadata = world.brokers.metadata(broker_id, partition)
            assert (metadata.leader, tuple(metadata.replicas)) == (state.leader, replicas)
    assert world.cluster.reassignment_request() is None
