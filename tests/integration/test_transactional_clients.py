"""Transactions by the clients that are not Java: librdkafka, kafka-python, aiokafka and kcat.

Each copies records in transactions with its group's offsets, some after an abort, and each record is there once.
Each is fenced by a later producer with its transactional id.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from rig.brokers import HOST, Cluster
from rig.raw_client import RawClient
from rig.topics import create_topic, record_count
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.conftest import PEERS
from tests.support.exactly_once import read_committed
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMEOUT_S = 60
RECORDS = 6
VALUES = [b"%d" % number for number in range(RECORDS)]
FENCED = re.compile(r"fenced|newer epoch|InvalidProducerEpoch|ProducerFenced", re.IGNORECASE)


class Client(Protocol):
    """What is asked of each library. ``copy`` copies ``RECORDS`` records, each in a transaction of its own; the first
    transaction of every third is aborted. ``fence`` begins one, has another producer take over, and goes on.
    """

    def copy(self, source: str, target: str) -> None: ...

    def fence(self, topic: str) -> None: ...

    def read(self, topic: str) -> list[bytes]:
        """The first ``RECORDS`` committed values."""


@pytest.fixture(scope="module", params=PEERS, ids=lambda kind: kind.value)
def cluster(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with Peer(request.param, zookeeper, tmp_path_factory.mktemp("brokers")).cluster() as running:
        yield running
        for broker in running.brokers.values():
            assert "traceback=" not in broker.log_text()


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _producer(self, name: str) -> Producer:
        made = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": name, "linger.ms": 0})
        made.init_transactions(TIMEOUT_S)
        return made

    def _consumer(self, group: str, topic: str) -> Consumer:
        made = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        made.subscribe([topic])
        return made

    def copy(self, source: str, target: str) -> None:
        consumer, producer = self._consumer(target, source), self._producer(target)
        for turn in range(RECORDS + RECORDS // 3):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None
            producer.begin_transaction()
            producer.produce(target, message.value())
            after = At(source, 0, (message.offset() or 0) + 1)
            producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), TIMEOUT_S)
            if turn % 4 == 0:
                assert producer.flush(TIMEOUT_S) == 0
                producer.abort_transaction(TIMEOUT_S)
                consumer.seek(At(source, 0, message.offset() or 0))
            else:
                producer.commit_transaction(TIMEOUT_S)
        consumer.close()

    def fence(self, topic: str) -> None:
        first = self._producer(topic)
        first.begin_transaction()
        first.produce(topic, b"first")
        assert first.flush(TIMEOUT_S) == 0
        second = self._producer(topic)
        with pytest.raises(Exception, match=FENCED):
            first.commit_transaction(TIMEOUT_S)
        second.begin_transaction()
        second.produce(topic, b"second")
        second.commit_transaction(TIMEOUT_S)

    def read(self, topic: str) -> list[bytes]:
        consumer = self._consumer(f"{topic}-reader", topic)
        found = consumer.consume(RECORDS, TIMEOUT_S)
        consumer.close()
        return [message.value() or b"" for message in found]


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _producer(self, name: str) -> KafkaProducer:
        made = KafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=name, max_block_ms=TIMEOUT_S * 1000
        )
        made.init_transactions()
        return made

    def _consumer(self, group: str, topic: str) -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            consumer_timeout_ms=TIMEOUT_S * 1000,
        )

    def copy(self, source: str, target: str) -> None:
        consumer, producer = self._consumer(target, source), self._producer(target)
        partition = TopicPartition(source, 0)
        for turn in range(RECORDS + RECORDS // 3):
            message = next(consumer)
            producer.begin_transaction()
            producer.send(target, message.value)
            after = {partition: OffsetAndMetadata(message.offset + 1, "", -1)}
            producer.send_offsets_to_transaction(after, consumer.group_metadata())
            if turn % 4 == 0:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction()
                consumer.seek(partition, message.offset)
            else:
                producer.commit_transaction()
        producer.close(timeout=TIMEOUT_S)
        consumer.close()

    def fence(self, topic: str) -> None:
        first = self._producer(topic)
        first.begin_transaction()
        first.send(topic, b"first").get(TIMEOUT_S)
        second = self._producer(topic)
        assert FENCED.search(repr(self._error_of(first.commit_transaction)))
        second.begin_transaction()
        second.send(topic, b"second")
        second.commit_transaction()
        for producer in (first, second):
            producer.close(timeout=TIMEOUT_S)

    def _error_of(self, call: Callable[[], None]) -> Exception:
        with pytest.raises(Exception) as raised:
            call()
        return raised.value

    def read(self, topic: str) -> list[bytes]:
        consumer = self._consumer(f"{topic}-reader", topic)
        found = [message.value for message in islice(consumer, RECORDS)]
        consumer.close()
        return found


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _producer(self, name: str) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=name)

    def _consumer(self, group: str, topic: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )

    def copy(self, source: str, target: str) -> None:
        _run(self._copy(source, target))

    async def _copy(self, source: str, target: str) -> None:
        partition = AioPartition(source, 0)
        async with self._consumer(target, source) as consumer, self._producer(target) as producer:
            for turn in range(RECORDS + RECORDS // 3):
                message = await consumer.getone()
                await producer.begin_transaction()
                await producer.send_and_wait(target, message.value)
                await producer.send_offsets_to_transaction({partition: message.offset + 1}, target)
                if turn % 4 == 0:
                    await producer.abort_transaction()
                    consumer.seek(partition, message.offset)
                else:
                    await producer.commit_transaction()

    def fence(self, topic: str) -> None:
        _run(self._fence(topic))

    async def _fence(self, topic: str) -> None:
        first = self._producer(topic)
        await first.start()
        await first.begin_transaction()
        await first.send_and_wait(topic, b"first")
        async with self._producer(topic) as second:
            with pytest.raises(Exception, match=FENCED):
                await first.commit_transaction()
            async with second.transaction():
                await second.send_and_wait(topic, b"second")
        await first.stop()

    def read(self, topic: str) -> list[bytes]:
        found: list[bytes] = []
        _run(self._read(topic, found))
        return found

    async def _read(self, topic: str, found: list[bytes]) -> None:
        async with self._consumer(f"{topic}-reader", topic) as consumer:
            while len(found) < RECORDS:
                found.append((await consumer.getone()).value)


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


@pytest.mark.parametrize("library", [Confluent, KafkaPython, Aiokafka])
def test_each_record_is_copied_once_although_transactions_are_aborted(
    library: Callable[[str], Client], cluster: Cluster
) -> None:
    client = library(cluster.bootstrap)
    source, target = (f"{library.__name__}-{end}" for end in ("in", "out"))
    for topic in (source, target):
        create_topic(cluster.bootstrap, topic, 1)
    feeder = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in VALUES:
        feeder.produce(source, value)
    assert feeder.flush(TIMEOUT_S) == 0
    client.copy(source, target)
    assert client.read(target) == VALUES
    assert read_committed(cluster.bootstrap, target) == VALUES
    turns = RECORDS + RECORDS // 3
    assert record_count(cluster.bootstrap, target) == 2 * turns, "each turn's record, and its marker"
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": target})
    assert [each.offset for each in group.committed([At(source, 0)], TIMEOUT_S)] == [RECORDS]
    group.close()


@pytest.mark.parametrize("library", [Confluent, KafkaPython, Aiokafka])
def test_a_producer_is_fenced_by_a_later_one(library: Callable[[str], Client], cluster: Cluster) -> None:
    topic = f"{library.__name__}-fenced"
    create_topic(cluster.bootstrap, topic, 1)
    library(cluster.bootstrap).fence(topic)
    assert read_committed(cluster.bootstrap, topic) == [b"second"]


def kcat(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["kcat", "-b", cluster.bootstrap, "-m", str(TIMEOUT_S), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kcat_commits_its_input_and_what_it_left_open_is_aborted(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, "kcat", 1)
    write = ("-P", "-t", "kcat", "-p", "0", "-X", "transactional.id=kcat")
    with kcat(cluster, *write) as whole:
        whole.communicate("one\ntwo\n", TIMEOUT_S)
    assert whole.returncode == 0
    assert record_count(cluster.bootstrap, "kcat") == 3
    with kcat(cluster, *write) as killed:
        assert killed.stdin is not None
        killed.stdin.write("three\n" * 20_000)  # it sends nothing before its buffer is full
        killed.stdin.flush()
        with RawClient(HOST, cluster.brokers[1].port) as raw:
            wait_until(lambda: raw.end_offset("kcat") > 3, TIMEOUT_S, what="three is written")
        killed.kill()
    with kcat(cluster, *write) as again:
        again.communicate("four\n", TIMEOUT_S)
    read = ("-C", "-e", "-q", "-t", "kcat", "-X", "isolation.level=read_committed")
    with kcat(cluster, *read) as reader:
        printed, _ = reader.communicate(timeout=TIMEOUT_S)
    assert printed.split() == ["one", "two", "four"]
