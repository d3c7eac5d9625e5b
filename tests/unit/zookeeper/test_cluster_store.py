"""Typed operations over the embedded store: what is written where, and what concurrent brokers may do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog

from broker.config.endpoint import Endpoint
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerMovedError, claim_controller
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import BadVersionError, NodeExistsError, StoreError
from broker.zookeeper.znodes import BadZnodeError, BrokerRegistration, LeaderAndIsr
from tests.support.clocks import ManualClock
from tests.support.faulty_store import Fault, Faults, FaultySession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock():
    return ManualClock(0)


@pytest.fixture
def store(clock):
    embedded = EmbeddedStore()
    embedded.connect()
    store = ClusterStore(embedded, clock)
    store.create_top_level_paths()
    return store


def test_all_of_kafkas_top_level_paths_are_made_and_making_them_again_is_harmless(store):
    store.create_top_level_paths()
    assert sorted(store.store.children("/config")) == [
        "brokers",
        "changes",
        "clients",
        "ips",
        "topics",
        "users",
    ]
    assert sorted(store.store.children("/brokers")) == ["ids", "seqid", "topics"]
    assert store.store.exists("/consumers") is not None


def test_the_cluster_id_is_made_once(store):
    assert store.cluster_id() is None
    cluster_id = store.get_or_create_cluster_id()
    assert len(cluster_id) == 22
    assert store.get_or_create_cluster_id() == cluster_id == store.cluster_id()


def test_generated_broker_ids_rise_above_the_reserved_ones(store):
    assert [store.next_broker_id(1000), store.next_broker_id(1000)] == [1001, 1002]


def test_producer_id_blocks_follow_each_other(store):
    assert [store.next_producer_id_block(b) for b in (1, 2, 1)] == [(0, 1000), (1000, 1000), (2000, 1000)]


def test_a_broker_registers_once(store):
    registration = BrokerRegistration(3, (Endpoint("h", 1, "PLAINTEXT"),))
    epoch = store.register_broker(registration)
    assert store.brokers()[3].epoch == epoch
    # The same session asking again, as after a lost answer, is told the same.
    assert store.register_broker(registration) == epoch
    store.unregister_broker(3)
    store.unregister_broker(3)
    assert store.brokers() == {}


def test_a_topic_is_created_with_its_config(store):
    topic_id = store.create_topic("t", {0: (1, 2)}, {"retention.ms": "5"})
    assert store.topics() == ["t"]
    assert store.topic_assignment("t").topic_id == topic_id
    assert store.topic_configs("t") == {"retention.ms": "5"}
    assert store.topics_configs(["t", "x"]) == {"t": {"retention.ms": "5"}, "x": {}}
    with pytest.raises(NodeExistsError):
        store.create_topic("t", {0: (1,)}, {})


def test_the_present_id_of_a_topic_is_told_while_it_exists(store):
    assert store.present_topic_id("t") is None
    topic_id = store.create_topic("t", {0: (1, 2)}, {})
    assert store.present_topic_id("t") == topic_id
    store.store.delete(znodes.topic_path("t"))
    assert store.create_topic("t", {0: (1, 2)}, {}) == store.present_topic_id("t") != topic_id


def test_an_assignment_is_replaced_only_at_its_version(store):
    store.create_topic("t", {0: (1,)}, {})
    read = store.topic_assignment("t")
    store.set_topic_assignment("t", replace(read, partitions={0: (1,), 1: (1,)}))
    with pytest.raises(BadVersionError):
        store.set_topic_assignment("t", read)


def test_configs_of_any_entity_are_kept_by_their_name(store):
    store.set_entity_config("users", "a/b", {"k": "1"})
    store.set_entity_config("brokers", znodes.DEFAULT_ENTITY, {"k": "2"})
    store.set_entity_config("brokers", znodes.DEFAULT_ENTITY, {"k": "3"})
    assert store.entity_config("users", "a/b") == {"k": "1"}
    assert store.entity_config_at("brokers/<default>") == {"k": "3"}
    assert store.entity_names("users") == ["a/b"]
    assert store.entity_config("users", "nobody") == {}


def test_the_config_of_one_that_is_gone_is_removed_once_and_no_others(store):
    store.set_entity_config("brokers", "4", {"k": "1"})
    store.set_entity_config("brokers", znodes.DEFAULT_ENTITY, {"k": "2"})
    assert store.remove_entity_config("brokers", "4")
    assert not store.remove_entity_config("brokers", "4")
    assert store.entity_names("brokers") == [znodes.DEFAULT_ENTITY]


def test_config_changes_are_told_in_order_and_purged_by_age(store, clock):
    seen = []
    store.watch_config_changes(lambda: seen.append(1))
    store.create_config_change("topics/a")
    store.create_config_change("topics/b")
    changes = store.config_changes()
    assert [path for _, path in changes] == ["topics/a", "topics/b"]
    assert store.config_changes(after=changes[0][0]) == changes[1:]
    assert len(seen) == 2
    clock.now_ms = store.store.get(f"/config/changes/{changes[1][0]}")[1].ctime_ms + 15 * 60 * 1000
    assert store.purge_config_changes() >= 0
    clock.now_ms += 1
    store.purge_config_changes()
    assert store.config_changes() == []


def test_the_first_controller_has_epoch_one_and_the_second_must_wait(store):
    first = claim_controller(store, 1)
    assert (first.epoch.epoch, store.controller_id()) == (1, 1)
    first.resign()
    second = claim_controller(store, 2)
    assert second.epoch.epoch == 2
    with pytest.raises(ControllerMovedError, match="broker 2 is controller"):
        claim_controller(store, 3)
    assert store.controller_epoch()[0] == 2


def test_an_overtaken_controller_can_write_nothing(store):
    old = claim_controller(store, 1)
    store.create_topic("t", {0: (1,)}, {})
    state = old.create_partition_states({T0: LeaderAndIsr(1, 0, (1,), 1)})[T0]
    old.resign()
    claim_controller(store, 2)
    for write in (
        lambda: old.update_partition_states({T0: replace(state, leader=-1)}),
        lambda: old.create_partition_states({T1: state}),
        lambda: old.delete_topic("t", [0]),
        lambda: old.set_topic_assignment("t", store.topic_assignment("t")),
        old.resign,
    ):
        with pytest.raises(ControllerMovedError):
            write()
    assert store.partition_states([T0, T1]) == {T0: state}
    assert store.controller_id() == 2


def test_partition_states_are_written_at_their_partition_epoch(store):
    controller = claim_controller(store, 1)
    store.create_topic("t", {0: (1,), 1: (1,)}, {})
    first = LeaderAndIsr(1, 0, (1, 2), 1)
    written = controller.create_partition_states({T0: first, T1: first})
    assert written == {T0: replace(first, partition_epoch=0), T1: replace(first, partition_epoch=0)}
    assert store.partition_states([T0, T1]) == written
    updated = controller.update_partition_states({T0: replace(written[T0], isr=(1,))})
    assert updated[T0].partition_epoch == 1
    stale = controller.update_partition_states({T0: replace(written[T0], leader=2)})
    assert isinstance(stale[T0], BadVersionError)
    again = controller.create_partition_states({T0: replace(first, leader=2)})
    assert isinstance(again[T0], NodeExistsError)


def test_a_write_that_meets_its_own_first_try_is_done(store):
    controller = claim_controller(store, 1)
    store.create_topic("t", {0: (1,)}, {})
    state = controller.create_partition_states({T0: LeaderAndIsr(1, 0, (1, 2), 1)})[T0]
    wish = replace(state, isr=(1,))
    assert controller.update_partition_states({T0: wish}) == controller.update_partition_states({T0: wish})


def test_a_topic_whose_creation_meets_its_own_first_try_is_created(store):
    for nth in range(1, 6):
        faults = Faults(nth, Fault.REPEATED)
        topic = f"t{nth}"
        created = ClusterStore(FaultySession(store.store, {}, faults)).create_topic(topic, {0: (1,)}, {})
        assert faults.met or faults.count < nth
        assert created == store.topic_assignment(topic).topic_id
        with pytest.raises(NodeExistsError):
            store.create_topic(topic, {0: (1,)}, {})


def test_partitions_whose_addition_meets_its_own_first_try_are_added(store):
    store.create_topic("t", {0: (1,)}, {})
    found = store.topic_assignment("t")
    wanted = replace(found, partitions={0: (1,), 1: (2,)})
    ClusterStore(FaultySession(store.store, {}, Faults(1, Fault.REPEATED))).set_topic_assignment("t", wanted)
    assert store.topic_assignment("t").partitions == {0: (1,), 1: (2,)}
    with pytest.raises(BadVersionError):
        store.set_topic_assignment("t", found)


def test_a_deleted_topic_leaves_no_znode(store):
    controller = claim_controller(store, 1)
    store.create_topic("t", {0: (1,)}, {"a": "b"})
    controller.create_partition_states({T0: LeaderAndIsr(1, 0, (1,), 1)})
    store.mark_topic_for_deletion("t")
    controller.delete_topic("t", [0])
    controller.delete_topic("t", [0])
    for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
        assert store.store.exists(path) is None


def test_a_spoilt_znode_is_left_out_and_named_in_the_log(store):
    store.create_topic("good", {0: (1,)}, {})
    store.store.create("/brokers/topics/bad", b"{}")
    store.store.create("/brokers/ids/7", b"?")
    with structlog.testing.capture_logs() as logged:
        assert list(store.topic_assignments(store.topics())) == ["good"]
        assert store.brokers() == {}
    assert [line["event"] for line in logged] == ["znode_unreadable"] * 2
    assert "/brokers/topics/bad" in logged[0]["reason"]
    assert "/brokers/ids/7" in logged[1]["reason"]


def test_a_topic_whose_configs_are_spoilt_is_left_out_of_many(store):
    store.create_topic("good", {0: (1,)}, {"retention.ms": "5"})
    store.create_topic("bad", {0: (1,)}, {"retention.ms": "5"})
    store.store.set("/config/topics/bad", b"damaged{")
    assert store.topics_configs(["good", "bad", "none"]) == {"good": {"retention.ms": "5"}, "none": {}}


def test_a_spoilt_znode_that_is_needed_is_named(store):
    store.store.create("/brokers/ids/7", b"?")
    with pytest.raises(BadZnodeError, match="/brokers/ids/7"):
        store.broker(7)
    assert issubclass(BadZnodeError, StoreError)
