"""Topics that come, grow and go under the controller: over both stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.zookeeper.znodes import LeaderAndIsr
from rig.wait import wait_until
from tests.support.controller_world import SETTINGS, T0, T1, active
from tests.support.fake_brokers import answer_stop_replica

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_a_new_topic_gets_leaders_and_its_brokers_are_told(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3), 1: (3, 1)})
    state = world.wait_leader(T0, 2)
    assert state == LeaderAndIsr(2, 0, (2, 3), 1, partition_epoch=0)
    for broker_id in (2, 3):
        told = wait_until(lambda b=broker_id: world.brokers.leader_and_isr(b, T0), 30)
        assert (told.leader, tuple(told.isr), told.is_new, tuple(told.replicas)) == (2, (2, 3), True, (2, 3))
    assert world.brokers.leader_and_isr(1, T0) is None
    for broker_id in (1, 2, 3):
        metadata = wait_until(lambda b=broker_id: world.brokers.metadata(b, T1), 30)
        assert metadata.leader == 3
    request = world.brokers.requests(ApiKey.LEADER_AND_ISR, 2)[-1].message
    assert request.topic_states[0].topic_id == world.observer.topic_assignment("t").topic_id
    assert request.broker_epoch == world.observer.broker(2).epoch
    assert {(leader.broker_id, leader.host_name, leader.port) for leader in request.live_leaders} == {
        (2, "h", 9002)
    }
    update = world.brokers.requests(ApiKey.UPDATE_METADATA, 1)[-1].message
    endpoints = {b.id_: (b.endpoints[0].host, b.endpoints[0].listener, b.rack) for b in update.live_brokers}
    assert endpoints[3] == ("h", "PLAINTEXT", "rack3")


def test_added_partitions_get_leaders(world):
    active(world.node(1))
    world.create("t", {0: (1,)})
    world.wait_leader(T0, 1)
    assignment = world.observer.topic_assignment("t")
    world.observer.set_topic_assignment("t", replace(assignment, partitions={0: (1,), 1: (1,)}))
    assert world.wait_leader(T1, 1).leader_epoch == 0


def test_a_partition_without_a_live_replica_waits_for_one(world):
    active(world.node(1))
    world.create("t", {0: (7,)})
    wait_until(lambda: world.nodes[0].gauge("offlinepartitionscount") == 1, 30)
    world.join(7)
    assert world.wait_leader(T0, 7).isr == (7,)


def test_a_deleted_topic_leaves_brokers_and_znodes(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2)}, {"retention.ms": "1000"})
    world.wait_leader(T0, 1)
    world.observer.mark_topic_for_deletion("t")
    wait_until(lambda: not world.observer.topic_exists("t"), 30)
    wait_until(lambda: world.observer.topics_to_delete() == [], 30)
    assert world.observer.topic_configs("t") == {}
    assert world.observer.store.exists("/config/topics/t") is None
    for broker_id in (1, 2):
        assert world.brokers.stopped(broker_id, T0).delete_partition
        assert world.brokers.metadata(broker_id, T0).leader == -2


def test_a_topic_may_be_created_again_after_its_deletion(world):
    active(world.node(1))
    for _ in range(3):
        world.create("t", {0: (1,)})
        assert world.wait_leader(T0, 1).leader_epoch == 0
        world.observer.mark_topic_for_deletion("t")
        wait_until(
            lambda: world.observer.topics_to_delete() == [] and not world.observer.topic_exists("t"), 30
        )


def test_deletion_waits_for_a_dead_broker(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2)})
    world.wait_leader(T0, 1)
    world.leave(2)
    wait_until(lambda: world.state(T0).isr == (1,), 30)
    world.observer.mark_topic_for_deletion("t")
    assert wait_until(lambda: world.brokers.stopped(1, T0), 30).delete_partition
    assert world.observer.topic_exists("t")
    world.join(2)
    wait_until(lambda: not world.observer.topic_exists("t"), 30)
    assert world.brokers.stopped(2, T0).delete_partition


def test_a_deletion_that_failed_on_a_broker_is_tried_again_when_it_restarts(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (2,)})
    world.wait_leader(T0, 2)
    world.brokers.answers[ApiKey.STOP_REPLICA] = lambda message: answer_stop_replica(
        message, Errors.KAFKA_STORAGE_ERROR
    )
    world.observer.mark_topic_for_deletion("t")
    wait_until(lambda: (s := world.brokers.stopped(2, T0)) and s.delete_partition, 30)
    del world.brokers.answers[ApiKey.STOP_REPLICA]
    wait_until(lambda: "t" in world.nodes[0].controller._term.context.deletion_ineligible, 30)
    assert world.observer.topic_exists("t")
    world.leave(2)
    world.join(2)
    wait_until(lambda: not world.observer.topic_exists("t"), 30)


def test_deletion_is_refused_when_disabled(zk_world):
    zk_world.settings = replace(SETTINGS, delete_topic_enable=False)
    active(zk_world.node(1))
    zk_world.create("t", {0: (1,)})
    zk_world.wait_leader(T0, 1)
    zk_world.observer.mark_topic_for_deletion("t")
    wait_until(lambda: zk_world.observer.topics_to_delete() == [], 30)
    assert zk_world.observer.topic_exists("t")


def test_a_restarted_single_broker_changes_no_leader_epoch(world):
    node = active(world.node(1))
    world.create("t", {0: (1,)})
    state = world.wait_leader(T0, 1)
    node.controller.shutdown()
    world.observer.unregister_broker(1)
    active(world.node(1))
    assert world.state(T0) == state


def test_a_spoilt_topic_does_not_keep_the_controller_from_governing_the_others(world):
    world.observer.store.create("/brokers/topics/spoilt", b"by hand")
    active(world.node(1))
    world.create("t", {0: (1,)})
    world.wait_leader(T0, 1)
