"""A real transactional producer and consumer against one broker, with verification of every transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from broker.protocol.errors import Errors
from broker.record.batch import BatchHeader, iter_batches
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from tests.support.transaction_requests import (
    ABORT,
    end,
    fetch,
    in_transaction,
    produce,
    read_committed,
    values_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running
        assert "traceback=" not in running.log_text()


def transactional(broker: LandlineStandalone, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_consumed_offsets_and_produced_records_are_committed_together(
    broker: LandlineStandalone, client: RawClient
) -> None:
    for topic in ("in", "out"):
        assert client.create_topic(topic).error_code == Errors.NONE
    source = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        source.produce("in", b"%d" % number)
    source.flush(TIMEOUT_S)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "copy",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.subscribe(["in"])
    producer = transactional(broker, "copy")
    for number in range(6):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        producer.begin_transaction()
        producer.produce("out", b"copy of " + message.value())
        position = [TopicPartition("in", 0, message.offset() + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
        if number % 3 == 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    (committed,) = consumer.committed([TopicPartition("in", 0)], TIMEOUT_S)
    assert committed.offset == 5
    consumer.close()
    assert read_committed(client, "out") == [b"copy of 0", b"copy of 1", b"copy of 3", b"copy of 4"]


def test_a_second_producer_fences_the_first(broker: LandlineStandalone, client: RawClient) -> None:
    assert client.create_topic("fenced").error_code == Errors.NONE
    first = transactional(broker, "same")
    first.begin_transaction()
    first.produce("fenced", b"first")
    first.flush(TIMEOUT_S)
    second = transactional(broker, "same")
    with pytest.raises(KafkaException):
        first.commit_transaction(TIMEOUT_S)
    second.begin_transaction()
    second.produce("fenced", b"second")
    second.commit_transaction(TIMEOUT_S)
    assert read_committed(client, "fenced") == [b"second"]


@pytest.mark.parametrize(
    ("version", "error"), [(9, Errors.INVALID_TXN_STATE), (11, Errors.TRANSACTION_ABORTABLE)]
)
def test_records_of_a_partition_that_is_not_in_the_transaction_are_refused(
    version: int, error: Errors, broker: LandlineStandalone, client: RawClient
) -> None:
    topic = f"outside-{version}"
    for name in (topic, f"{topic}-inside"):
        assert client.create_topic(name).error_code == Errors.NONE
    producer = transactional(broker, topic)
    producer.begin_transaction()
    producer.produce(f"{topic}-inside", b"v")
    producer.flush(TIMEOUT_S)
    (entry,) = [batch for batch in _headers(client, f"{topic}-inside") if batch.is_transactional]
    batch = in_transaction(b"v", pid=entry.producer_id, epoch=entry.producer_epoch)
    answer = produce(client, topic, batch, transactional_id=topic, version=version)
    assert answer.error_code == error
    assert client.end_offset(topic) == 0
    producer.abort_transaction(TIMEOUT_S)


def test_records_of_an_unknown_transactional_id_are_refused(
    broker: LandlineStandalone, client: RawClient
) -> None:
    transactional(broker, "known")  # so that there is a coordinator
    assert client.create_topic("unknown").error_code == Errors.NONE
    answer = produce(client, "unknown", in_transaction(b"v", pid=99), transactional_id="nobody")
    assert answer.error_code == Errors.INVALID_PRODUCER_ID_MAPPING


def test_a_hanging_transaction_is_ended_by_hand(broker: LandlineStandalone, client: RawClient) -> None:
    assert client.create_topic("hanging").error_code == Errors.NONE
    producer = transactional(broker, "hanging")
    producer.begin_transaction()
    producer.produce("hanging", b"v")
    producer.flush(TIMEOUT_S)
    (entry,) = _headers(client, "hanging")
    assert fetch(client, "hanging").last_stable_offset == 0
    assert end(client, "hanging", entry.producer_id, ABORT, epoch=entry.producer_epoch) is Errors.NONE
    assert fetch(client, "hanging").last_stable_offset == 2
    with RawClient(HOST, broker.port) as other:
        assert values_of(fetch(other, "hanging")) == [b"v"]
        assert read_committed(other, "hanging") == []


def _headers(client: RawClient, topic: str) -> list[BatchHeader]:
    return list(iter_batches(memoryview(fetch(client, topic, isolation=0).records)))
