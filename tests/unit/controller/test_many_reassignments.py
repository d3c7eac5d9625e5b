"""A request that names very many brokers or partitions costs what they are, and others of the controller's
events come in between.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.controller.reassignment_requests import Wishes
from broker.controller.rules.replica_assignment import ReplicaAssignment, check_alive, check_target, few
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition
from tests.support.controllers_world import ControllersWorld
from tests.support.term_world import TermWorld

T0 = TopicPartition("t", 0)
MANY = 5_000


class Counted(int):
    """A broker's id that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def comparisons_to_move(count: int) -> int:
    """From half of the brokers to the other half, and then to a third choice."""
    Counted.compared = 0
    ids = [Counted(number) for number in range(count)]
    third = count // 3
    again = (
        ReplicaAssignment(tuple(ids[:third]))
        .reassign_to(ids[third : 2 * third])
        .reassign_to(ids[2 * third :])
    )
    assert len(again.unneeded) == third
    assert len(again.without_unneeded().replicas) == count - third
    return Counted.compared


def test_work_for_a_move_grows_with_its_replicas_and_not_with_their_square():
    comparisons_to_move(90)
    assert comparisons_to_move(3_000) < 10 * 3_000


def test_list_of_replicas_that_is_refused_is_quoted_in_part():
    ids = list(range(MANY))
    assert few([1, 2, 3]) == "[1, 2, 3]"
    for refused in (
        lambda: check_target([*ids, 0]),
        lambda: check_target([*ids, -1]),
        lambda: check_alive(ids, ReplicaAssignment((1,)), ids[:10]),
    ):
        with pytest.raises(KafkaError) as refusal:
            refused()
        assert refusal.value.error_code is Errors.INVALID_REPLICA_ASSIGNMENT
        assert len(str(refusal.value)) < 500


def request(*wishes: tuple[TopicPartition, list[int] | None]) -> object:
    """Over the wire."""
    topics = [
        {"name": tp.topic, "partitions": [{"partition_index": tp.partition, "replicas": replicas}]}
        for tp, replicas in wishes
    ]
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    return codec.decode(
        key, 0, "request", codec.encode(key, 0, "request", {"topics": topics, "timeout": 1000})
    )


def strangers() -> list[tuple[TopicPartition, list[int] | None]]:
    """Partitions that are not there."""
    return [(TopicPartition("t", 1 + number), [0]) for number in range(MANY)]


@pytest.fixture
def world():
    made = ControllersWorld()
    made.observer.create_topic("t", {0: (0, 1)}, {})
    made.settle()
    return made


def test_other_events_come_between_the_slices_of_a_long_request(world):
    node, answers, seen = world.active, [], []
    node.controller.alter_partition_reassignments(request(*strangers(), (T0, [2, 3])), answers.append)
    node.events.put("another", lambda: seen.append(len(answers)))
    world.settle()
    assert seen == [0], "it need not wait for the whole"
    ((refused),) = answers
    assert len(refused) == MANY
    assert {error.error_code for error in refused.values()} == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
    assert T0 in node.controller._term.context.reassignments()


def test_wish_is_judged_by_what_is_when_the_last_slice_comes(world):
    node, answers = world.active, []
    node.controller.alter_partition_reassignments(request((T0, [2, 3]), *strangers()), answers.append)
    node.events.put("meanwhile", lambda: node.controller._term.context.shutting_down.add(3))
    world.settle()
    ((refused),) = answers
    assert refused[T0].error_code is Errors.INVALID_REPLICA_ASSIGNMENT
    assert node.controller._term.context.reassignments() == {}


def test_controller_that_loses_its_office_between_two_slices_says_so_once(world):
    node, answers = world.active, []
    node.controller.alter_partition_reassignments(request((T0, [2, 3]), *strangers()), answers.append)
    node.events.put("meanwhile", lambda: node.controller._resign(give_back=True))
    world.settle()
    assert answers == [Errors.NOT_CONTROLLER]
    assert not world.observer.topic_assignment("t").adding_replicas


def test_refusals_of_one_request_have_a_few_lines_and_their_number():
    world = TermWorld({0: None})
    world.elect()
    with capture_logs() as logs:
        world.term.reassignment_requests.alter(request(*strangers()))
    assert len([line for line in logs if line["event"] == "reassignment_refused"]) == 20
    (rest,) = [line for line in logs if line["event"] == "reassignments_refused"]
    assert rest["partitions"] == MANY


def test_latest_wish_of_a_request_for_a_partition_holds():
    wishes = Wishes(
        request((T0, []), (T0, [1]), (TopicPartition("t", 1), [2]), (TopicPartition("t", 1), [2, 2]))
    )
    assert {tp: list(ids) for tp, ids in wishes.targets.items()} == {T0: [1]}
    assert set(wishes.refused) == {TopicPartition("t", 1)}


def test_override_may_leave_out_a_broker_that_has_died_since_it_was_to_be_added():
    world = TermWorld(dict.fromkeys(range(5), None))
    world.elect()
    world.create("t", {0: (1, 2)})
    assert world.ask_to_move({T0: (3, 2)}) == {T0: Errors.NONE}
    world.leave(3)
    assert world.ask_to_move({T0: (4, 2)}) == {T0: Errors.NONE}
    world.grow_isrs()
    assert world.assignment("t").partitions[0] == (4, 2)
