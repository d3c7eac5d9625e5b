"""Batches with a right checksum whose records are not what the batch says: each by each look, and to Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from broker.protocol.errors import Errors
from broker.record.batch import read_records
from broker.record.header import read_header
from rig.brokers import HOST
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.lying_batches import LIES, TIMESTAMP, Lie, batch, record
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_topic_numbers = count(1)


@pytest.fixture(scope="module")
def thorough(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """A connection to a broker that looks at every record."""
    config: dict[str, object] = {"landline.produce.validation": "all"}
    with (
        LandlineStandalone(tmp_path_factory.mktemp("thorough") / "data", config) as broker,
        RawClient(HOST, broker.port) as client,
    ):
        yield client


@pytest.fixture
def topic(client: RawClient) -> str:
    return make_topic(client)


def make_topic(client: RawClient) -> str:
    """A new topic of one partition with one record."""
    name = f"topic-{next(_topic_numbers)}"
    assert client.create_topic(name).error_code == Errors.NONE
    assert client.produce(name, 0, some_records(b"first")).error_code == Errors.NONE
    return name


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_records_that_are_not_what_their_batch_says_are_refused(
    lie: Lie, client: RawClient, topic: str
) -> None:
    answer = client.produce(topic, 0, lie.make())
    if lie.at_first:
        assert Errors(int(answer.error_code)) is lie.answer
        assert answer.error_message
        assert client.end_offset(topic) == 1
    else:
        assert answer.error_code == Errors.NONE


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_look_at_every_record_finds_every_lie(lie: Lie, thorough: RawClient) -> None:
    topic = make_topic(thorough)
    assert Errors(int(thorough.produce(topic, 0, lie.make()).error_code)) is lie.answer
    assert thorough.end_offset(topic) == 1


def test_compacted_topic_looks_at_every_record(client: RawClient) -> None:
    assert client.create_topic("compacted", configs={"cleanup.policy": "compact"}).error_code == Errors.NONE
    codes = {
        name: Errors(int(client.produce("compacted", 0, lie.make()).error_code)) for name, lie in LIES.items()
    }
    assert codes == {name: lie.answer for name, lie in LIES.items()}


def test_lies_are_answered_by_kafka_as_the_table_says(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with (
        KafkaBroker(1, zookeeper.chroot(), tmp_path / "kafka") as kafka,
        RawClient(HOST, kafka.port) as client,
    ):
        assert client.create_topic("lies").error_code == Errors.NONE
        wait_until(
            lambda: client.produce("lies", 0, some_records()).error_code == Errors.NONE, what="Kafka's topic"
        )
        codes = {
            name: Errors(int(client.produce("lies", 0, lie.make()).error_code)) for name, lie in LIES.items()
        }
    assert codes == {name: lie.kafka for name, lie in LIES.items()}


def test_highest_timestamp_is_set_right_as_kafka_does(client: RawClient, topic: str) -> None:
    answer = client.produce(topic, 0, batch(record(timestamp_delta=7), 1))
    assert answer.error_code == Errors.NONE
    written = memoryview(client.fetch(topic, 0, answer.base_offset).records)
    assert read_header(written).max_timestamp == TIMESTAMP + 7
    assert read_records(written)[0].timestamp == TIMESTAMP + 7
