"""The benchmark's transactional producer, against librdkafka's own test brokers: what it writes, and what it times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.client.transactions import Commits, TransactionsRun, write_transactions
from bench.machine import Usage
from bench.suites.transactions import transaction_metrics, transaction_values
from rig.processes import CpuSeconds

pytestmark = pytest.mark.slow
TIMEOUT_S = 30.0
PARTITIONS = 4


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A broker that lives in the fixture's client, with the topic "t" of four partitions."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = owner.list_topics(timeout=TIMEOUT_S).brokers.values()
    owner.list_topics("t", timeout=TIMEOUT_S)
    yield ",".join(f"{each.host}:{each.port}" for each in brokers)
    owner.flush(0)


def written(bootstrap: str) -> list[int]:
    """How many records and markers each partition has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    ends = [
        consumer.get_watermark_offsets(TopicPartition("t", number), TIMEOUT_S)[1]
        for number in range(PARTITIONS)
    ]
    consumer.close()
    return ends


def test_every_transaction_has_its_records_and_they_go_to_all_partitions_alike(bootstrap: str) -> None:
    run = write_transactions(bootstrap, "t", PARTITIONS, Commits(records=100), 0.5)
    assert run.commit_ms
    assert run.records == 100 * len(run.commit_ms)
    markers = len(run.commit_ms)
    assert written(bootstrap) == [run.records // PARTITIONS + markers] * PARTITIONS


def test_a_transaction_by_time_is_committed_when_its_time_is_over(bootstrap: str) -> None:
    run = write_transactions(bootstrap, "t", PARTITIONS, Commits(seconds=0.1), 0.5)
    assert 1 <= len(run.commit_ms) <= 5
    assert run.records > PARTITIONS * len(run.commit_ms)
    assert run.seconds >= 0.1 * len(run.commit_ms)


def test_a_commit_is_timed_without_the_records_before_it(bootstrap: str) -> None:
    run = write_transactions(bootstrap, "t", PARTITIONS, Commits(records=100), 0.5)
    assert min(run.commit_ms) > 0
    assert sum(run.commit_ms) < run.seconds * 1000


def test_the_figures_are_by_record_and_by_transaction() -> None:
    run = TransactionsRun(records=2000, seconds=4.0, commit_ms=[1.0, 3.0])
    values = transaction_values("k", run, Usage(5.0, CpuSeconds(0.3, 0.1), CpuSeconds(1, 1), 0.0))
    assert values == {
        "k.rate": 500.0,
        "k.cpu": pytest.approx(200.0),
        "k.commit_p50": 1.0,
        "k.commit_p99": 3.0,
        "k.transactions": 0.5,
        "k.system": pytest.approx(50.0),
        "k.transaction_cpu": pytest.approx(200.0),
    }
    assert {metric.key for metric in transaction_metrics("k", "title")} == set(values)
