"""What operators do with the admin clients and command-line tools that they have, all of them made for Kafka."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource as KpConfigResource
from kafka.admin import ConfigResourceType as KpConfigResourceType
from kafka.admin import KafkaAdminClient
from kafka.admin import NewPartitions as KpNewPartitions
from kafka.admin import NewTopic as KpNewTopic

from rig.kafka_dist import run_tool
from rig.landline_broker import LandlineStandalone
from rig.topics import create_topic, record_count
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {"offsets.topic.num.partitions": 2}
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running
        assert "traceback=" not in running.log_text()


def write(broker: LandlineStandalone, topic: str, number: int, **config: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", **config})
    errors: list[object] = []
    for value in range(number):
        producer.produce(topic, b"%d" % value, partition=0, on_delivery=lambda e, _: e and errors.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    assert not errors


def commit(broker: LandlineStandalone, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


# --- librdkafka


@pytest.fixture
def admin(broker: LandlineStandalone) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def test_librdkafka_makes_describes_extends_and_deletes_topics(admin: AdminClient) -> None:
    new = NewTopic("rd-topic", 2, 1, config={"retention.ms": "60000"})
    admin.create_topics([new])["rd-topic"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([new])["rd-topic"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("rd-three", 1, 3)])["rd-three"].result(TIMEOUT_S)
    admin.create_partitions([NewPartitions("rd-topic", 5)])["rd-topic"].result(TIMEOUT_S)
    assert len(admin.list_topics("rd-topic", timeout=TIMEOUT_S).topics["rd-topic"].partitions) == 5
    admin.delete_topics(["rd-topic"])["rd-topic"].result(TIMEOUT_S)
    wait_until(lambda: "rd-topic" not in admin.list_topics(timeout=TIMEOUT_S).topics)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics(["rd-topic"])["rd-topic"].result(TIMEOUT_S)


def test_librdkafka_alters_and_describes_configs(admin: AdminClient, broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "rd-configs", 1)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "rd-configs")

    def alter(value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        changed = ConfigResource(ConfigResource.Type.TOPIC, "rd-configs", incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S)

    def retention() -> str:
        return str(admin.describe_configs([topic])[topic].result(TIMEOUT_S)["retention.ms"].value)

    assert retention() == "604800000"
    alter("777000", AlterConfigOpType.SET)
    wait_until(lambda: retention() == "777000")
    alter(None, AlterConfigOpType.DELETE)
    wait_until(lambda: retention() == "604800000")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter("soon", AlterConfigOpType.SET)
    own = ConfigResource(ConfigResource.Type.BROKER, "0")
    assert admin.describe_configs([own])[own].result(TIMEOUT_S)["broker.id"].value == "0"


def test_librdkafka_manages_groups_and_their_offsets(admin: AdminClient, broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "rd-groups", 1)
    write(broker, "rd-groups", 10)
    commit(broker, "rd-group", "rd-groups", 7)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert not listed.errors
    assert "rd-group" in {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups(["rd-group"])["rd-group"].result(TIMEOUT_S)
    assert described.state == ConsumerGroupState.EMPTY

    def committed() -> int:
        wanted = ConsumerGroupTopicPartitions("rd-group", [TopicPartition("rd-groups", 0)])
        found = admin.list_consumer_group_offsets([wanted])["rd-group"].result(TIMEOUT_S)
        return int(found.topic_partitions[0].offset)

    assert committed() == 7
    reset = ConsumerGroupTopicPartitions("rd-group", [TopicPartition("rd-groups", 0, 2)])
    admin.alter_consumer_group_offsets([reset])["rd-group"].result(TIMEOUT_S)
    assert committed() == 2
    admin.delete_consumer_groups(["rd-group"])["rd-group"].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert "rd-group" not in {group.group_id for group in listed.valid}


def test_group_with_members_is_not_deleted(admin: AdminClient, broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "rd-members", 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "rd-busy"})
    try:
        consumer.subscribe(["rd-members"])
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), timeout=TIMEOUT_S)
        described = admin.describe_consumer_groups(["rd-busy"])["rd-busy"].result(TIMEOUT_S)
        assert described.state == ConsumerGroupState.STABLE
        (member,) = described.members
        assert [(p.topic, p.partition) for p in member.assignment.topic_partitions] == [("rd-members", 0)]
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["rd-busy"])["rd-busy"].result(TIMEOUT_S)
    finally:
        consumer.close()


def test_librdkafka_lists_offsets_and_describes_the_cluster(
    admin: AdminClient, broker: LandlineStandalone
) -> None:
    create_topic(broker.bootstrap, "rd-offsets", 1)
    write(broker, "rd-offsets", 5)
    partition = TopicPartition("rd-offsets", 0)
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5)):
        assert admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset == offset
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [node.id for node in cluster.nodes] == [0]
    assert cluster.controller.id == 0
    assert cluster.cluster_id


def test_topics_are_made_when_somebody_writes_to_them(broker: LandlineStandalone) -> None:
    write(broker, "auto-made", 3)
    assert record_count(broker.bootstrap, "auto-made") == 3


def test_idempotent_producer_writes_each_record_once(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "idempotent", 1)
    write(broker, "idempotent", 2_000, **{"enable.idempotence": True, "batch.num.messages": 10})
    assert record_count(broker.bootstrap, "idempotent") == 2_000


def test_a_later_librdkafka_producer_fences_the_one_before(broker: LandlineStandalone) -> None:
    first, second = (
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "librdkafka"}) for _ in range(2)
    )
    first.init_transactions(TIMEOUT_S)
    second.init_transactions(TIMEOUT_S)
    first.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        first.send_offsets_to_transaction([TopicPartition("t", 0, 1)], _group_metadata(broker), TIMEOUT_S)
    assert refused.value.args[0].code() in {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def _group_metadata(broker: LandlineStandalone) -> Any:
    """Of a consumer without a group to join."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


# --- kafka-python


@pytest.fixture
def kp_admin(broker: LandlineStandalone) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def test_kafka_python_makes_describes_extends_and_deletes_topics(kp_admin: KafkaAdminClient) -> None:
    kp_admin.create_topics([KpNewTopic("kp-topic", 2, 1, topic_configs={"retention.ms": "60000"})])
    wait_until(lambda: "kp-topic" in kp_admin.list_topics())
    (described,) = kp_admin.describe_topics(["kp-topic"])
    assert len(described["partitions"]) == 2
    kp_admin.create_partitions({"kp-topic": KpNewPartitions(4)})
    wait_until(lambda: len(kp_admin.describe_topics(["kp-topic"])[0]["partitions"]) == 4)
    kp_admin.delete_topics(["kp-topic"])
    wait_until(lambda: "kp-topic" not in kp_admin.list_topics())


def test_kafka_python_reads_configs_and_groups(
    kp_admin: KafkaAdminClient, broker: LandlineStandalone
) -> None:
    create_topic(broker.bootstrap, "kp-groups", 1, config={"retention.ms": "123000"})
    write(broker, "kp-groups", 4)
    commit(broker, "kp-group", "kp-groups", 3)
    resource = KpConfigResource(KpConfigResourceType.TOPIC, "kp-groups")
    assert "123000" in str(kp_admin.describe_configs([resource]))
    assert "kp-group" in str(kp_admin.list_groups())
    assert "Empty" in str(kp_admin.describe_groups(["kp-group"]))
    assert "offset=3" in str(kp_admin.list_group_offsets("kp-group"))
    kp_admin.delete_groups(["kp-group"])
    assert "kp-group" not in str(kp_admin.list_groups())


def test_kafka_python_writes_idempotently_and_reads(broker: LandlineStandalone) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    for value in range(100):
        producer.send("kp-auto", b"%d" % value)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        "kp-auto",
        bootstrap_servers=broker.bootstrap,
        group_id="kp-reader",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    try:
        values = [next(consumer).value for _ in range(100)]
    finally:
        consumer.close()
    assert values == [b"%d" % value for value in range(100)]


def test_a_kafka_python_producer_commits_and_aborts_transactions(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "kp-txn", 1)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id="kp-txn", max_block_ms=TIMEOUT_S * 1000
    )
    try:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send("kp-txn", b"%d" % number)
            producer.commit_transaction() if number % 2 else producer.abort_transaction()
    finally:
        producer.close(timeout=TIMEOUT_S)
    consumer = KafkaConsumer(
        "kp-txn",
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    try:
        assert [next(consumer).value for _ in range(3)] == [b"1", b"3", b"5"]
    finally:
        consumer.close()


# --- kcat


def kcat(broker: LandlineStandalone, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_writes_reads_and_asks_offsets(broker: LandlineStandalone) -> None:
    kcat(broker, "-P", "-t", "kcat-topic", "-p", "0", text="one\ntwo\nthree\n")
    listing = kcat(broker, "-L")
    assert "broker 0 at" in listing
    assert 'topic "kcat-topic" with 1 partitions' in listing
    assert kcat(broker, "-C", "-e", "-q", "-t", "kcat-topic", "-o", "1").split() == ["two", "three"]
    assert "offset 3" in kcat(broker, "-Q", "-t", "kcat-topic:0:-1")


# --- Kafka's own tools: one JVM each


def tool(main_class: str, broker: LandlineStandalone, *arguments: str) -> str:
    done = run_tool(main_class, "--bootstrap-server", broker.bootstrap, *arguments, timeout_s=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_kafkas_topic_command(broker: LandlineStandalone) -> None:
    command = "org.apache.kafka.tools.TopicCommand"
    made = tool(
        command,
        broker,
        *("--create", "--topic", "jvm-topic", "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=98765"),
    )
    assert "Created topic jvm-topic" in made
    described = tool(command, broker, "--describe", "--topic", "jvm-topic")
    assert "PartitionCount: 3" in described
    assert "retention.ms=98765" in described
    assert re.search(r"Partition: 2\s+Leader: 0\s+Replicas: 0\s+Isr: 0", described)


@pytest.mark.slow
def test_kafkas_config_command(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "jvm-configs", 1)
    altered = tool(
        "kafka.admin.ConfigCommand",
        broker,
        *("--alter", "--entity-type", "topics", "--entity-name", "jvm-configs"),
        *("--add-config", "retention.ms=54321,cleanup.policy=[compact,delete]"),
    )
    assert "Completed updating config for topic jvm-configs" in altered
    described = tool(
        "kafka.admin.ConfigCommand",
        broker,
        *("--describe", "--entity-type", "topics", "--entity-name", "jvm-configs"),
    )
    assert "retention.ms=54321" in described
    assert "cleanup.policy=compact,delete" in described


@pytest.mark.slow
def test_kafkas_consumer_group_command(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "jvm-groups", 1)
    write(broker, "jvm-groups", 9)
    commit(broker, "jvm-group", "jvm-groups", 4)
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    described = tool(command, broker, "--describe", "--group", "jvm-group")
    assert re.search(r"jvm-group\s+jvm-groups\s+0\s+4\s+9\s+5", described)
    reset = tool(
        command,
        broker,
        *("--reset-offsets", "--group", "jvm-group", "--topic", "jvm-groups", "--to-earliest", "--execute"),
    )
    assert re.search(r"jvm-group\s+jvm-groups\s+0\s+0", reset)
    assert "successful" in tool(command, broker, "--delete", "--group", "jvm-group")


@pytest.mark.slow
def test_kafkas_get_offset_shell(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "jvm-offsets", 1)
    write(broker, "jvm-offsets", 6)
    told = tool("org.apache.kafka.tools.GetOffsetShell", broker, "--topic", "jvm-offsets")
    assert "jvm-offsets:0:6" in told


@pytest.mark.slow
def test_kafkas_performance_tools_write_and_read(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "jvm-perf", 1)
    properties = f"bootstrap.servers={broker.bootstrap}"
    wrote = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "jvm-perf", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", properties, "acks=all"),
        timeout_s=200,
    )
    assert "5000 records sent" in wrote.stdout, wrote.stdout + wrote.stderr
    read = run_tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--topic", "jvm-perf", "--messages", "5000", "--bootstrap-server", broker.bootstrap),
        timeout_s=200,
    )
    assert read.returncode == 0, read.stdout + read.stderr
    assert re.search(r", 5000, ", read.stdout), read.stdout


@pytest.mark.slow
def test_a_transactional_java_producer_writes(broker: LandlineStandalone) -> None:
    create_topic(broker.bootstrap, "jvm-txn", 1)
    tried = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "jvm-txn", "--num-records", "10", "--record-size", "10", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
        *("--transactional-id", "t", "--transaction-duration-ms", "60000"),
        timeout_s=200,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert record_count(broker.bootstrap, "jvm-txn") == 11  # with the marker
