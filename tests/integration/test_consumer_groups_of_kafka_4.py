"""Consumer groups of Kafka 4 (KIP-848) with librdkafka: shared, static, by expression, in both protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.kafka_dist import KafkaDistUnavailableError, dump_log_segments, run_tool
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.valid_requests import World, fields

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
PARTITIONS = 4
_numbers = count(1)

Join = Callable[..., Consumer]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.min.session.timeout.ms": 6_000,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running
        assert "traceback=" not in running.log_text()


@pytest.fixture
def topic(broker: LandlineStandalone) -> str:
    """A topic with ten records in each partition."""
    name = f"topic-{next(_numbers)}"
    with RawClient(HOST, broker.port) as client:
        assert client.create_topic(name, PARTITIONS).error_code == Errors.NONE
    produce(broker, name)
    return name


def produce(broker: LandlineStandalone, topic: str) -> None:
    producer = Producer({"bootstrap.servers": f"{HOST}:{broker.port}"})
    for number in range(10 * PARTITIONS):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    producer.flush()


@pytest.fixture
def join(broker: LandlineStandalone) -> Iterator[Join]:
    """Starts consumers, which are closed at the end."""
    with ExitStack() as closing:

        def start(group: str, *topics: str, protocol: str = "consumer", **config: object) -> Consumer:
            consumer = Consumer(
                {
                    "bootstrap.servers": f"{HOST}:{broker.port}",
                    "group.id": group,
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                    **{name.replace("_", "."): value for name, value in config.items()},
                }
            )
            consumer.subscribe(list(topics))
            closing.callback(consumer.close)
            return consumer

        yield start


def assigned(consumer: Consumer) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in consumer.assignment()}


def poll_until(condition: Callable[[], bool], *consumers: Consumer, what: str) -> list[bytes]:
    """The values that the consumers read until it holds."""
    values: list[bytes] = []

    def reached() -> bool:
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                values.append(message.value())
        return condition()

    wait_until(reached, what=what)
    return values


def read(consumer: Consumer, number: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < number:
        values += poll_until(lambda: True, consumer, what="a poll")
    return values


def test_two_consumers_share_a_topic_and_the_one_that_stays_gets_it_all(
    broker: LandlineStandalone, topic: str, join: Join
) -> None:
    one = join(topic, topic)
    assert len(read(one, 10 * PARTITIONS)) == 10 * PARTITIONS
    two = join(topic, topic)
    poll_until(lambda: len(assigned(one)) == len(assigned(two)) == 2, one, two, what="an even share")
    assert not assigned(one) & assigned(two)
    one.close()
    again = poll_until(lambda: len(assigned(two)) == PARTITIONS, two, what="all partitions")
    assert again == [], "what the first has committed is read again"
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{broker.port}"})
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert described.type is ConsumerGroupType.CONSUMER
    assert [len(member.assignment.topic_partitions) for member in described.members] == [PARTITIONS]
    listed = {group.group_id: group.type for group in admin.list_consumer_groups().result().valid}
    assert listed[topic] is ConsumerGroupType.CONSUMER


def test_a_static_member_that_comes_back_keeps_its_partitions(topic: str, join: Join) -> None:
    one, two = join(topic, topic, group_instance_id="one"), join(topic, topic, group_instance_id="two")
    poll_until(lambda: len(assigned(one)) == len(assigned(two)) == 2, one, two, what="an even share")
    before, others = assigned(one), assigned(two)
    one.close()
    back = join(topic, topic, group_instance_id="one")
    poll_until(lambda: assigned(back) == before, back, two, what="the same partitions again")
    assert assigned(two) == others


def test_a_regular_expression_finds_topics_that_are_made_later(
    broker: LandlineStandalone, topic: str, join: Join
) -> None:
    consumer = join(topic, f"^{topic}(-later)?")
    poll_until(lambda: len(assigned(consumer)) == PARTITIONS, consumer, what="the topic that there is")
    with RawClient(HOST, broker.port) as client:
        assert client.create_topic(f"{topic}-later", 2).error_code == Errors.NONE
    poll_until(lambda: len(assigned(consumer)) == PARTITIONS + 2, consumer, what="the later topic, too")


def test_a_group_changes_its_protocol_and_keeps_its_offsets(
    broker: LandlineStandalone, topic: str, join: Join
) -> None:
    for protocol in ("classic", "consumer", "classic"):
        consumer = join(topic, topic, protocol=protocol)
        values = read(consumer, 10 * PARTITIONS)
        assert len(values) == len(set(values)) == 10 * PARTITIONS, f"not every record once by {protocol}"
        consumer.close()
        produce(broker, topic)


def test_kafkas_own_consumer_reads_and_kafkas_own_tool_reads_the_records(
    broker: LandlineStandalone, topic: str
) -> None:
    """Kafka 3.9 has the protocol as a preview. It does not know the records of regular expressions yet."""
    try:
        done = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic, "--from-beginning"),
            *("--max-messages", str(10 * PARTITIONS), "--timeout-ms", "30000"),
            *("--consumer-property", "group.protocol=consumer"),
        )
    except KafkaDistUnavailableError as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 10 * PARTITIONS
    (log,) = broker.log_dir.rglob("__consumer_offsets-0/*.log")
    dumped = dump_log_segments([log], "--offsets-decoder").stdout
    lines = [line for line in dumped.splitlines() if f'"groupId":"{topic}"' in line]
    kinds = {kind for kind in range(3, 9) if any(f'"type":"{kind}"' in line for line in lines)}
    assert kinds == {3, 4, 5, 6, 7, 8}
    assert not [line for line in lines if "payload: {" not in line and "<DELETE>" not in line]


def test_without_the_protocol_in_the_config_nothing_is_advertised_or_served(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as plain, RawClient(HOST, plain.port) as client:
        answer = client.ask(ApiKey.API_VERSIONS, 4, fields(ApiKey.API_VERSIONS, 4, World()))
        keys = {row.api_key for row in answer.api_keys}
        assert not keys & {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
        beat = client.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, World())
        )
        assert beat.error_code == Errors.UNSUPPORTED_VERSION
