"""Spark's Kafka source and sink with transactions: ``kafka.isolation.level=read_committed``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pipeline.jars import connector_jars
from rig.landline_broker import LandlineStandalone
from rig.topics import create_topic
from tests.support.exactly_once import read_committed
from tests.support.local_spark import SPARK_WARNINGS, local_spark

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300), *SPARK_WARNINGS]


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    with local_spark("test_spark_reads_committed", tmp_path / "warehouse", jars=connector_jars()) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LandlineStandalone]:
    with LandlineStandalone(tmp_path / "data") as running:
        yield running


def test_spark_streams_only_what_transactions_committed_into_its_kafka_sink(
    spark: SparkSession, broker: LandlineStandalone, tmp_path: Path
) -> None:
    """A batch ends at the last stable offset: what comes before an open transaction's end is for the next one."""
    for topic in ("in-transactions", "from-spark"):
        create_topic(broker.bootstrap, topic, 1)
    writers = [Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"w{n}"}) for n in (1, 2)]
    first, second = writers
    for writer in writers:
        writer.init_transactions(60)
    settings = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.isolation.level": "read_committed"}

    def written(writer: Producer, value: bytes) -> None:
        writer.begin_transaction()
        writer.produce("in-transactions", value)
        assert writer.flush(60) == 0

    def copied() -> list[bytes]:
        source = spark.readStream.format("kafka").options(**settings).option("startingOffsets", "earliest")
        rows = source.option("subscribe", "in-transactions").load().select("value")
        sink = rows.writeStream.format("kafka").options(**settings).option("topic", "from-spark")
        checkpoint = str(tmp_path / "checkpoint")
        sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        return read_committed(broker.bootstrap, "from-spark")

    written(first, b"committed")
    first.commit_transaction(60)
    written(first, b"aborted")
    first.abort_transaction(60)
    written(first, b"open")
    written(second, b"behind")
    second.commit_transaction(60)
    assert copied() == [b"committed"]
    first.commit_transaction(60)
    assert copied() == [b"committed", b"open", b"behind"]
