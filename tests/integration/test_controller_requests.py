"""What brokers ask of the controller: ISR changes, controlled shutdown, producer ids."""

from __future__ import annotations

import uuid

import pytest

from broker.protocol.alter_partition_messages import AlterPartitionRequest, IsrChange, IsrChangesOfTopic
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.controller_world import T0, T1, active, alter, ask

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_leader_changes_its_isr(world, version):
    node = active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2)})
    state = world.wait_leader(T0, 1)
    answer = alter(node, T0, state, [1], version=version)
    row = answer.topics[0].partitions[0]
    assert (answer.error_code, row.error_code, tuple(row.isr), row.partition_epoch) == (0, 0, (1,), 1)
    assert world.state(T0).isr == (1,)
    assert world.state(T0).leader_epoch == state.leader_epoch
    wait_until(lambda: tuple(world.brokers.metadata(2, T0).isr) == (1,), 30)
    # Asked again with the old partition epoch it is as it should be, and a different wish comes too late.
    assert alter(node, T0, state, [1], version=version).topics[0].partitions[0].error_code == 0
    late = alter(node, T0, state, [1, 2], version=version).topics[0].partitions[0]
    assert late.error_code == Errors.INVALID_UPDATE_VERSION


def test_isr_changes_are_refused_with_kafkas_codes(world):
    node = active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2)})
    state = world.wait_leader(T0, 1)

    def error(isr=(1,), version=3, **changes):
        return Errors(
            alter(node, T0, state, isr, version=version, **changes).topics[0].partitions[0].error_code
        )

    assert error(leader_epoch=state.leader_epoch - 1) is Errors.FENCED_LEADER_EPOCH
    assert error(leader_epoch=state.leader_epoch + 1) is Errors.NOT_CONTROLLER
    assert error(partition_epoch=5) is Errors.NOT_CONTROLLER
    assert error(isr=(1, 9)) is Errors.INELIGIBLE_REPLICA
    assert error(isr=(1, 9), version=1) is Errors.OPERATION_NOT_ATTEMPTED
    assert error(isr=(2,)) is Errors.INVALID_REQUEST
    assert error(new_isr_with_epochs=[{"broker_id": 1, "broker_epoch": 77}]) is Errors.INELIGIBLE_REPLICA
    assert error(leader_recovery_state=1) is Errors.INVALID_REQUEST
    assert alter(node, T0, state, [1], broker_epoch=3).error_code == Errors.STALE_BROKER_EPOCH
    assert world.state(T0) == state


def test_an_unknown_topic_id_is_answered_as_such(world):
    node = active(world.node(1))
    topic_id = uuid.uuid4()
    change = IsrChange(TopicPartition("", 0), topic_id, 0, 0, (), ())
    request = AlterPartitionRequest(1, node.epoch, [IsrChangesOfTopic("", topic_id, [change])])
    answer = ask(node.controller.alter_partition, request)
    assert answer.topics[0].partitions[0].error is Errors.UNKNOWN_TOPIC_ID


def test_who_is_not_controller_says_so(zk_world):
    active(zk_world.node(1))
    two = zk_world.node(2)
    assert ask(two.controller.controlled_shutdown, 2, two.epoch)["error_code"] is Errors.NOT_CONTROLLER
    assert ask(two.controller.allocate_producer_ids, 2, two.epoch)["error_code"] is Errors.NOT_CONTROLLER


def test_a_stopping_broker_hands_over_its_leaders(world):
    node = active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3), 1: (3, 2)})
    world.wait_leader(T0, 2)
    world.wait_leader(T1, 3)
    epoch = world.observer.broker(2).epoch
    answer = ask(node.controller.controlled_shutdown, 2, epoch)
    assert answer == {"error_code": Errors.NONE, "remaining_partitions": []}
    state = world.state(T0)
    assert (state.leader, state.isr) == (3, (3,))
    assert world.state(T1).isr == (3,)
    assert wait_until(lambda: world.brokers.stopped(2, T1), 30).delete_partition is False
    assert wait_until(lambda: world.brokers.leader_and_isr(2, T0).leader == 3, 30)
    # Asked again, as after a lost answer, it is the same.
    assert ask(node.controller.controlled_shutdown, 2, epoch)["remaining_partitions"] == []


def a_lone_leader_is_to_stop(world):
    """Broker 2 leads, broker 3 is its replica and out of sync; the controller's node and its answer to broker 2."""
    node = active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    state = world.wait_leader(T0, 2)
    alter(node, T0, state, [2])
    return node, ask(node.controller.controlled_shutdown, 2, world.observer.broker(2).epoch)


def test_a_leader_that_only_a_lagging_replica_could_follow_is_named(world):
    _, answer = a_lone_leader_is_to_stop(world)
    assert answer["remaining_partitions"] == [{"topic_name": "t", "partition_index": 0}]
    assert world.state(T0).leader == 2


def test_a_stopping_leader_hands_over_once_the_lagging_replica_is_in_sync(world):
    node, _ = a_lone_leader_is_to_stop(world)
    alter(node, T0, world.state(T0), [2, 3])
    epoch = world.observer.broker(2).epoch
    assert ask(node.controller.controlled_shutdown, 2, epoch)["remaining_partitions"] == []
    assert (world.state(T0).leader, world.state(T0).isr) == (3, (3,))


def test_a_stopping_follower_does_not_come_into_the_isr(world):
    node = active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (3, 2)})
    alter(node, T0, world.wait_leader(T0, 3), [3])
    ask(node.controller.controlled_shutdown, 2, world.observer.broker(2).epoch)
    refused = alter(node, T0, world.state(T0), [3, 2])
    assert refused.topics[0].partitions[0].error_code == Errors.INELIGIBLE_REPLICA


def test_the_last_broker_is_told_to_go_at_once(world):
    node = active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2), 1: (1,)})
    world.wait_leader(T0, 1)
    world.leave(2)
    wait_until(lambda: world.state(T0).isr == (1,), 30)
    answer = ask(node.controller.controlled_shutdown, 1, node.epoch)
    assert answer == {"error_code": Errors.NONE, "remaining_partitions": []}


def test_a_controlled_shutdown_of_an_earlier_life_is_refused(world):
    node = active(world.node(1))
    assert (
        ask(node.controller.controlled_shutdown, 1, node.epoch - 1)["error_code"] is Errors.STALE_BROKER_EPOCH
    )
    assert ask(node.controller.controlled_shutdown, 9, 1)["error_code"] is Errors.BROKER_NOT_AVAILABLE


def test_producer_ids_come_in_blocks_that_never_overlap(world):
    node = active(world.node(1))
    starts = [ask(node.controller.allocate_producer_ids, 1, node.epoch) for _ in range(3)]
    assert [(s["error_code"], s["producer_id_start"], s["producer_id_len"]) for s in starts] == [
        (Errors.NONE, 0, 1000),
        (Errors.NONE, 1000, 1000),
        (Errors.NONE, 2000, 1000),
    ]
    data = world.observer.store.get("/latest_producer_id_block")[0]
    assert data == b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
    assert ask(node.controller.allocate_producer_ids, 1, -5)["error_code"] is Errors.STALE_BROKER_EPOCH
