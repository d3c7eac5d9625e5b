"""The contract with Apache Kafka 3.9.1: its znodes are ours to the byte, and its brokers obey our
controller.
"""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.controller import KafkaController
from broker.controller.topic_admin import NewTopic as WantedTopic
from broker.controller.topic_admin import TopicAdmin
from broker.metrics.registry import Metrics
from broker.replication.broker_channel import BrokerChannel
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.znodes import BrokerRegistration
from rig.kafka_broker import KafkaBroker
from rig.ports import free_port
from rig.wait import wait_until
from tests.support.fake_brokers import FakeBrokers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
T0 = TopicPartition("t", 0)


@pytest.fixture
def connect(zookeeper):
    return zookeeper.chroot()


@pytest.fixture
def cluster(connect):
    store = ZooKeeperStore(connect, 6000)
    store.connect(60_000, threading.Event())
    yield ClusterStore(store)
    store.close()


def produce(bootstrap, topic, count, **config):
    failed = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000, **config}
    )
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap, topic, count):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values = []
    wait_until(
        lambda: values.extend(m.value() for m in consumer.consume(100, 0.5)) or len(values) >= count, 60
    )
    consumer.close()
    return sorted(int(value) for value in values)


def done(futures):
    for future in futures.values():
        future.result(60)


def test_what_kafka_writes_we_would_write_to_the_byte(connect, cluster, tmp_path):
    with KafkaBroker(7, connect, tmp_path / "k7", {"broker.rack": "r1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        done(admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "1234567"})]))
        entry = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("TOPIC", "t", incremental_configs=[entry])
        done(admin.incremental_alter_configs([resource]))
        produce(broker.bootstrap, "t", 1, **{"enable.idempotence": True})
        get = cluster.store.get

        def data(path):
            return get(path)[0]

        registration = data("/brokers/ids/7")
        assert znodes.encode_broker(znodes.decode_broker(7, registration)) == registration
        topic = data("/brokers/topics/t")
        assert znodes.encode_topic(znodes.decode_topic("t", topic)) == topic
        state = data("/brokers/topics/t/partitions/0/state")
        assert znodes.encode_state(znodes.decode_state(T0, state, 0)) == state
        cluster_id = data("/cluster/id")
        assert znodes.encode_cluster_id(znodes.decode_cluster_id(cluster_id)) == cluster_id
        config = data("/config/topics/t")
        decoded = znodes.decode_config("/config/topics/t", config)
        assert decoded == {"retention.ms": "1234567", "segment.bytes": "1048576"}
        assert znodes.encode_config(decoded) == config
        controller = data("/controller")
        timestamp_ms = int(znodes.load("/controller", controller)["timestamp"])
        assert znodes.encode_controller(znodes.decode_controller(controller), timestamp_ms) == controller
        assert znodes.encode_producer_id_block(7, 0, 999) == data("/latest_producer_id_block")
        (change,) = cluster.store.children("/config/changes")
        assert znodes.encode_config_change("topics/t") == data(f"/config/changes/{change}")
        epoch = cluster.controller_epoch()
        assert data("/controller_epoch") == str(epoch[0]).encode()
        ours = set(znodes.PERSISTENT_PATHS)
        assert {path for path in ours if cluster.store.exists(path) is None} == set()
        live = cluster.broker(7)
        assert cluster.store.exists("/brokers/ids/7").version == 1, "created empty, then set"
        assert live.epoch > 0


class OurController:
    """A Landline controller on broker 1, whose own broker only records; the others are real."""

    def __init__(self, cluster: ClusterStore) -> None:
        self.cluster = cluster
        self.recorder = FakeBrokers()
        props = {"broker.id": "1", "zookeeper.connect": "unused"}
        self.config = BrokerConfig.from_properties(props)
        self.active: list[bool] = []
        self.controller = KafkaController(
            self.config,
            1,
            cluster,
            self.make_channel,
            clock=SYSTEM_CLOCK,
            on_state=self.active.append,
            metrics=Metrics(),
        )
        self.admin = TopicAdmin(self.config, cluster)

    def make_channel(self, address, client_id):
        if address.broker_id == 1:
            return self.recorder.make_channel(address, client_id)
        return BrokerChannel(address.host, address.port, client_id=client_id)

    def start(self) -> None:
        self.cluster.create_top_level_paths()
        self.cluster.get_or_create_cluster_id()
        self.controller.startup()
        endpoint = Endpoint("127.0.0.1", free_port(), "PLAINTEXT")
        registration = BrokerRegistration(1, (endpoint,), timestamp_ms=1)
        self.controller.broker_epoch = self.cluster.register_broker(registration)
        wait_until(lambda: self.active == [True], 30)


def test_kafka_brokers_obey_our_controller_and_kafkas_takes_over_from_it(connect, cluster, tmp_path):
    ours = OurController(cluster)
    ours.start()
    with KafkaBroker(2, connect, tmp_path / "k2") as two, KafkaBroker(3, connect, tmp_path / "k3") as three:
        wait_until(lambda: ours.recorder.live_brokers(1) == [1, 2, 3], 30)
        bootstrap = f"{two.bootstrap},{three.bootstrap}"
        ours.admin.create_topic(WantedTopic("t", assignment={0: (2, 3)}))
        wait_until(lambda: cluster.partition_states([T0]), 30)
        produce(bootstrap, "t", 100)

        ours.admin.create_partitions("t", 2, [(3, 2)])
        wait_until(lambda: cluster.partition_states([TopicPartition("t", 1)]), 30)
        produce(bootstrap, "t", 100)

        ours.admin.create_topic(WantedTopic("gone", assignment={0: (3, 2)}))
        copies = [tmp_path / "k2" / "gone-0", tmp_path / "k3" / "gone-0"]
        wait_until(lambda: all(copy.exists() for copy in copies), 30)
        ours.admin.delete_topic("gone")
        wait_until(lambda: not cluster.topic_exists("gone"), 30)
        wait_until(lambda: not any(copy.exists() for copy in copies), 30)

        two.kill()
        state = wait_until(lambda: (s := cluster.partition_states([T0])[T0]).leader == 3 and s, 60)
        assert state.isr == (3,)
        produce(three.bootstrap, "t", 100)

        # Kafka's controller reads what ours wrote, and goes on with it.
        ours.controller.shutdown()
        cluster.unregister_broker(1)
        wait_until(lambda: cluster.controller_id() == 3, 60)
        assert cluster.controller_epoch()[0] == 2
        two.start()
        wait_until(lambda: set(cluster.partition_states([T0])[T0].isr) == {2, 3}, 60)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        done(admin.create_topics([NewTopic("later", 1, 2)]))
        assert consume(bootstrap, "t", 300) == sorted([*range(100)] * 3)
        two.kill()
        three.kill()
