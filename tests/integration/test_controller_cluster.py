"""The controller over a real ZooKeeper (and the embedded store), with brokers that only record and obey."""

from __future__ import annotations

import threading
import uuid
from types import SimpleNamespace

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.controller import KafkaController
from broker.controller.settings import ControllerSettings
from broker.metrics.registry import Metrics
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr, LeaderRecoveryState
from tests.support.fake_brokers import FakeBrokers, answer_stop_replica
from tests.support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = ControllerSettings(0, "PLAINTEXT", rejoin_delay_ms=50, first_imbalance_check_ms=3_600_000)


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id, (Endpoint("h", 9000 + broker_id, "PLAINTEXT"),), f"rack{broker_id}", 1
    )


class Node:
    """One broker's own session, registration and controller."""

    def __init__(self, store, broker_id: int, brokers: FakeBrokers, settings: ControllerSettings) -> None:
        self.broker_id = broker_id
        self.store = store
        self.cluster = ClusterStore(store)
        self.metrics = Metrics()
        self.active: list[bool] = []
        config = BrokerConfig.from_properties({"broker.id": str(broker_id), "zookeeper.connect": "unused"})
        self.controller = KafkaController(
            config,
            broker_id,
            self.cluster,
            brokers.make_channel,
            SYSTEM_CLOCK,
            self.active.append,
            self.metrics,
            settings,
        )
        self.epoch = -1

    def start(self) -> Node:
        self.cluster.create_top_level_paths()
        self.controller.startup()
        self.register()
        return self

    def register(self) -> None:
        self.epoch = self.cluster.register_broker(registration(self.broker_id))
        self.controller.broker_epoch = self.epoch

    def stop(self) -> None:
        self.controller.shutdown()
        self.store.close()

    def gauge(self, name: str) -> float:
        found = [m for m in self.metrics.registered() if m.name == f"kafka_controller_kafkacontroller_{name}"]
        return found[0].instrument.function()


class World:
    """The nodes of one test, and another session that looks on and plays the further brokers."""

    def __init__(self, make_store, settings: ControllerSettings = SETTINGS) -> None:
        self.make_store = make_store
        self.settings = settings
        self.brokers = FakeBrokers()
        self.observer = ClusterStore(make_store())
        self.nodes: list[Node] = []

    def node(self, broker_id: int) -> Node:
        from dataclasses import replace

        store = self.make_store()
        node = Node(store, broker_id, self.brokers, replace(self.settings, broker_id=broker_id))
        self.nodes.append(node)
        return node.start()

    def join(self, *broker_ids: int) -> None:
        """Registers brokers that have no controller of their own."""
        for broker_id in broker_ids:
            self.observer.register_broker(registration(broker_id))

    def leave(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.observer.unregister_broker(broker_id)

    def create(
        self, topic: str, partitions: dict[int, tuple[int, ...]], config: dict[str, str] | None = None
    ) -> None:
        self.observer.create_topic(topic, partitions, config or {})

    def state(self, tp: TopicPartition) -> LeaderAndIsr | None:
        return self.observer.partition_states([tp]).get(tp)

    def wait_leader(self, tp: TopicPartition, leader: int) -> LeaderAndIsr:
        return wait_until(
            lambda: (state := self.state(tp)) is not None and state.leader == leader and state,
            30,
            what=lambda: f"leader {leader} of {tp} (now {self.state(tp)})",
        )

    def close(self) -> None:
        for node in self.nodes:
            node.stop()
        self.observer.store.close()


@pytest.fixture(params=["zookeeper", "embedded"])
def world(request, zookeeper, tmp_path):
    if request.param == "zookeeper":
        connect = zookeeper.chroot()

        def make_store():
            store = ZooKeeperStore(connect, 6000)
            store.connect(60_000, threading.Event())
            return store
    else:
        shared = EmbeddedStore(tmp_path / "metadata.db")
        shared.connect(0, threading.Event())

        def make_store():
            return shared

    world = World(make_store)
    world.observer.create_top_level_paths()
    yield world
    world.close()


@pytest.fixture
def zk_world(zookeeper):
    connect = zookeeper.chroot()

    def make_store():
        store = ZooKeeperStore(connect, 6000)
        store.connect(60_000, threading.Event())
        return store

    world = World(make_store)
    world.observer.create_top_level_paths()
    yield world
    world.close()


def active(node: Node) -> Node:
    wait_until(lambda: node.active[-1:] == [True], 30)
    return node


def ask(call, *args):
    """Calls the controller and waits for its answer."""
    answered = threading.Event()
    answers = []

    def callback(fields):
        answers.append(fields)
        answered.set()

    call(*args, callback)
    assert answered.wait(30)
    return answers[0]


def test_one_broker_is_elected_and_the_znodes_say_so(zk_world):
    one = active(zk_world.node(1))
    two = zk_world.node(2)
    wait_until(lambda: zk_world.brokers.live_brokers(1) == [1, 2], 30)
    assert zk_world.observer.controller_id() == 1
    assert zk_world.observer.controller_epoch()[0] == 1 == one.controller.epoch
    assert not two.controller.is_active
    assert one.gauge("activecontrollercount") == 1
    assert two.gauge("activecontrollercount") == 0


def test_another_broker_takes_over_at_once_when_the_controller_stops(zk_world):
    one = active(zk_world.node(1))
    two = zk_world.node(2)
    one.controller.shutdown()
    active(two)
    assert zk_world.observer.controller_id() == 2
    assert zk_world.observer.controller_epoch()[0] == 2
    assert one.active == [True, False]


def test_a_controller_whose_session_expired_resigns_and_may_be_elected_again(zk_world, zookeeper):
    from kazoo.client import KazooClient

    one = active(zk_world.node(1))
    twin = KazooClient(zookeeper.connect_string, client_id=one.store._client.client_id, timeout=6)
    twin.start()
    twin.stop()
    twin.close()
    wait_until(lambda: one.active == [True, False], 60)
    assert not one.controller.is_active
    wait_until(lambda: one.register() is None, 30, what="a new session")
    wait_until(lambda: one.active == [True, False, True], 30)
    assert zk_world.observer.controller_epoch()[0] == 2


def test_a_controller_that_was_overtaken_writes_nothing_and_resigns(zk_world):
    one = active(zk_world.node(1))
    zk_world.join(2)
    zk_world.create("t", {0: (1, 2)})
    before = zk_world.wait_leader(T0, 1)
    # Another controller came and went, unseen by this one, as after a long pause.
    epoch, version = zk_world.observer.controller_epoch()
    zk_world.observer.store.set("/controller_epoch", str(epoch + 1).encode(), version)
    zk_world.leave(2)
    wait_until(lambda: False in one.active, 30)
    # It found out before it wrote: the partition's next state is of the next term.
    wait_until(lambda: one.active[-1] is True, 30)
    state = wait_until(lambda: (s := zk_world.state(T0)) != before and s, 30)
    assert state.controller_epoch == epoch + 2
    assert state.isr == (1,)


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


def test_a_follower_takes_over_when_the_leader_dies_and_the_leader_comes_back(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    world.wait_leader(T0, 2)
    world.leave(2)
    state = world.wait_leader(T0, 3)
    assert (state.isr, state.leader_epoch) == ((3,), 1)
    metadata = wait_until(lambda: (m := world.brokers.metadata(1, T0)).leader == 3 and m, 30)
    assert tuple(metadata.offline_replicas) == (2,)
    world.brokers.clear()
    world.join(2)
    told = wait_until(lambda: world.brokers.leader_and_isr(2, T0), 30)
    assert (told.leader, told.leader_epoch, told.is_new) == (3, state.leader_epoch, False)
    assert wait_until(lambda: world.brokers.metadata(2, T0), 30).leader == 3


def test_the_last_replica_stays_in_the_isr_and_leads_again(world):
    node = active(world.node(1))
    world.join(2)
    world.create("t", {0: (2,)})
    world.wait_leader(T0, 2)
    world.leave(2)
    state = world.wait_leader(T0, -1)
    assert state.isr == (2,)
    wait_until(lambda: node.gauge("offlinepartitionscount") == 1, 30)
    world.join(2)
    assert world.wait_leader(T0, 2).isr == (2,)
    wait_until(lambda: node.gauge("offlinepartitionscount") == 0, 30)


def test_replicas_that_die_together_may_each_lead_again(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    world.wait_leader(T0, 2)
    world.leave(3, 2)
    state = world.wait_leader(T0, -1)
    # Whether one event saw both go or two events one each, the last of the ISR is not lost.
    survivor = state.isr[-1]
    world.join(survivor)
    assert world.wait_leader(T0, survivor).recovery_state is LeaderRecoveryState.RECOVERED


def test_a_replica_out_of_sync_leads_only_where_the_topic_allows_it(world):
    active(world.node(1))
    world.join(2, 3)
    world.create("safe", {0: (2, 3)})
    world.create("fast", {0: (2, 3)}, {"unclean.leader.election.enable": "true"})
    safe, fast = TopicPartition("safe", 0), TopicPartition("fast", 0)
    world.wait_leader(safe, 2)
    world.wait_leader(fast, 2)
    world.leave(3)
    wait_until(lambda: world.state(safe).isr == (2,) and world.state(fast).isr == (2,), 30)
    world.leave(2)
    world.wait_leader(safe, -1)
    world.wait_leader(fast, -1)
    world.join(3)
    state = world.wait_leader(fast, 3)
    assert (state.isr, state.recovery_state) == ((3,), LeaderRecoveryState.RECOVERING)
    assert world.state(safe).leader == -1
    world.join(2)
    assert world.wait_leader(safe, 2).isr == (2,)


def test_a_broker_that_registers_again_unseen_is_told_everything_anew(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (2, 1)})
    world.wait_leader(T0, 2)
    old_epoch = world.observer.broker(2).epoch
    world.brokers.clear()
    world.leave(2)
    world.join(2)
    new_epoch = world.observer.broker(2).epoch
    assert new_epoch > old_epoch
    told = wait_until(lambda: world.brokers.leader_and_isr(2, T0), 30)
    assert told.leader in {1, 2}
    requests = wait_until(lambda: world.brokers.requests(ApiKey.LEADER_AND_ISR, 2), 30)
    assert requests[-1].message.broker_epoch == new_epoch


def test_added_partitions_get_leaders(world):
    from dataclasses import replace

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
    from dataclasses import replace

    zk_world.settings = replace(SETTINGS, delete_topic_enable=False)
    active(zk_world.node(1))
    zk_world.create("t", {0: (1,)})
    zk_world.wait_leader(T0, 1)
    zk_world.observer.mark_topic_for_deletion("t")
    wait_until(lambda: zk_world.observer.topics_to_delete() == [], 30)
    assert zk_world.observer.topic_exists("t")


def test_a_new_controller_finishes_what_the_old_one_left(zk_world):
    one = active(zk_world.node(1))
    two = zk_world.node(2)
    zk_world.create("t", {0: (1, 2)})
    zk_world.wait_leader(T0, 1)
    one.stop()
    active(two)
    state = zk_world.wait_leader(T0, 2)
    assert (state.isr, state.controller_epoch) == ((2,), 2)
    assert state.leader_epoch == 1, "elected in one step"
    told = wait_until(lambda: (t := zk_world.brokers.leader_and_isr(2, T0)) and t.leader == 2 and t, 30)
    assert told.leader_epoch == state.leader_epoch
    zk_world.nodes.remove(one)


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


def test_a_controller_whose_broker_is_taken_from_the_register_leaves_the_partitions_alone(world):
    node = active(world.node(1))
    world.create("t", {0: (1,)})
    state = world.wait_leader(T0, 1)
    world.leave(1)
    wait_until(lambda: node.active == [True, False], 30)
    assert world.observer.controller_id() == -1
    assert world.state(T0) == state
    node.register()
    wait_until(lambda: node.active == [True, False, True], 30)
    assert world.state(T0) == state


def alter(node, tp, state, isr, *, version=3, broker_epoch=None, **changes):
    """Asks for a change of the ISR through the wire format of the version."""
    values = {
        "partition_index": tp.partition,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr": list(isr),
        "new_isr_with_epochs": [{"broker_id": member, "broker_epoch": -1} for member in isr],
        **changes,
    }
    topic = {
        "topic_name": tp.topic,
        "topic_id": node.cluster.topic_assignment(tp.topic).topic_id,
        "partitions": [values],
    }
    broker_id = state.leader
    epoch = node.cluster.broker(broker_id).epoch if broker_epoch is None else broker_epoch
    fields = {"broker_id": broker_id, "broker_epoch": epoch, "topics": [topic]}
    wire = codec.encode(ApiKey.ALTER_PARTITION, version, "request", fields)
    message = codec.decode(ApiKey.ALTER_PARTITION, version, "request", wire)
    answer = ask(node.controller.alter_partition, message)
    response = codec.encode(ApiKey.ALTER_PARTITION, version, "response", {"throttle_time": 0, **answer})
    return codec.decode(ApiKey.ALTER_PARTITION, version, "response", response)


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
    partition = SimpleNamespace(
        partition_index=0, leader_epoch=0, partition_epoch=0, new_isr_with_epochs=[], leader_recovery_state=0
    )
    topic = SimpleNamespace(topic_id=uuid.uuid4(), partitions=[partition])
    message = SimpleNamespace(broker_id=1, broker_epoch=node.epoch, topics=[topic])
    answer = ask(node.controller.alter_partition, message)
    assert answer["topics"][0]["partitions"][0]["error_code"] is Errors.UNKNOWN_TOPIC_ID


def test_who_is_not_controller_says_so(zk_world):
    active(zk_world.node(1))
    two = zk_world.node(2)
    assert ask(two.controller.controlled_shutdown, 2, two.epoch)["error_code"] is Errors.NOT_CONTROLLER
    assert ask(two.controller.allocate_producer_ids, 2, two.epoch)["error_code"] is Errors.NOT_CONTROLLER


def test_the_preferred_leader_leads_again_once_it_is_back_in_sync(world):
    node = active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    world.wait_leader(T0, 2)
    world.leave(2)
    world.wait_leader(T0, 3)
    world.join(2)
    wait_until(lambda: world.brokers.live_brokers(1) == [1, 2, 3], 30)
    state = world.state(T0)
    assert alter(node, T0, state, [3, 2]).topics[0].partitions[0].error_code == 0
    back = world.wait_leader(T0, 2)
    assert back.isr == (3, 2)
    assert back.leader_epoch == state.leader_epoch + 1


def test_an_imbalance_is_mended_by_the_check(zk_world):
    from dataclasses import replace

    zk_world.settings = replace(SETTINGS, first_imbalance_check_ms=1, imbalance_check_interval_ms=50)
    node = active(zk_world.node(1))
    zk_world.join(2)
    zk_world.create("t", {0: (2, 1)})
    state = zk_world.wait_leader(T0, 2)
    zk_world.leave(2)
    zk_world.wait_leader(T0, 1)
    zk_world.join(2)
    wait_until(lambda: zk_world.brokers.live_brokers(1) == [1, 2], 30)
    alter(node, T0, zk_world.state(T0), [1, 2])
    assert zk_world.wait_leader(T0, 2).leader_epoch > state.leader_epoch


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


def test_a_leader_that_only_a_lagging_replica_could_follow_is_named(world):
    node = active(world.node(1))
    world.join(2, 3)
    world.create("t", {0: (2, 3)})
    state = world.wait_leader(T0, 2)
    alter(node, T0, state, [2])
    answer = ask(node.controller.controlled_shutdown, 2, world.observer.broker(2).epoch)
    assert answer["remaining_partitions"] == [{"topic_name": "t", "partition_index": 0}]
    assert world.state(T0).leader == 2


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


def test_a_broker_that_cannot_be_reached_gets_everything_in_order_later(world):
    active(world.node(1))
    world.brokers.down.add(2)
    world.join(2)
    world.create("t", {0: (2, 1)})
    world.wait_leader(T0, 2)
    wait_until(lambda: world.brokers.metadata(1, T0), 30)
    assert world.brokers.requests(broker_id=2) == []
    world.brokers.down.clear()
    told = wait_until(lambda: world.brokers.leader_and_isr(2, T0), 30)
    assert told.leader == 2
    apis = [r.api for r in world.brokers.requests(broker_id=2)]
    assert apis[0] is ApiKey.UPDATE_METADATA


def test_a_replica_whose_directory_failed_is_offline_though_its_broker_lives(world):
    from tests.support.fake_brokers import answer_leader_and_isr

    active(world.node(1))
    world.join(2)

    def fail_on_two(message):
        mine = any(state.leader == 2 for topic in message.topic_states for state in topic.partition_states)
        return answer_leader_and_isr(message, Errors.KAFKA_STORAGE_ERROR if mine else 0)

    world.brokers.answers[ApiKey.LEADER_AND_ISR] = fail_on_two
    world.create("t", {0: (2,)})
    world.wait_leader(T0, -1)
    assert 2 in world.observer.brokers()


def test_a_full_leader_and_isr_goes_to_brokers_that_start(world):
    active(world.node(1))
    world.join(2)
    world.create("t", {0: (1, 2), 1: (2, 1)})
    world.wait_leader(T1, 2)
    wait_until(lambda: world.brokers.leader_and_isr(2, T1), 30)
    assert world.brokers.requests(ApiKey.LEADER_AND_ISR, 2)[-1].message.type_ == 1
    world.leave(2)
    world.wait_leader(T1, 1)
    world.brokers.clear()
    world.join(2)
    told = wait_until(lambda: world.brokers.requests(ApiKey.LEADER_AND_ISR, 2), 30)[0].message
    assert told.type_ == 2
    assert sum(len(topic.partition_states) for topic in told.topic_states) == 2


def test_changed_addresses_reach_everybody(zk_world):
    from dataclasses import replace

    active(zk_world.node(1))
    zk_world.join(2)
    wait_until(lambda: zk_world.brokers.live_brokers(1) == [1, 2], 30)
    moved = replace(registration(2), endpoints=(Endpoint("elsewhere", 1, "PLAINTEXT"),))
    zk_world.observer.update_broker(moved)

    def told():
        last = zk_world.brokers.requests(ApiKey.UPDATE_METADATA, 1)[-1].message
        return {b.id_: b.endpoints[0].host for b in last.live_brokers}[2] == "elsewhere"

    wait_until(told, 30)
