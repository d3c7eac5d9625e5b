"""Spark's connector on SASL_SSL, and by a client certificate, with ACLs and the settings of docs/security.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.jars import connector_jars
from tests.support.documented_clients import settings_of
from tests.support.local_spark import SPARK_WARNINGS, local_spark
from tests.support.secure_cluster import PASSWORDS, WRONG, SecureCluster, create_topics

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600), *SPARK_WARNINGS]

FIRST, SECOND, THIRD = "alice-first", "alice-second", "alice-third"


@pytest.fixture(scope="module")
def cluster(secured: SecureCluster) -> SecureCluster:
    create_topics(secured, FIRST, SECOND, THIRD)
    return secured


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with local_spark("test_spark_on_sasl_ssl", warehouse, jars=connector_jars()) as session:
        session.sparkContext.setLogLevel("OFF")
        yield session


def stream(spark: SparkSession, source: str, sink: str, settings: dict[str, str], checkpoint: Path) -> None:
    """Copies one topic to another by a streaming query, to the present end."""
    records = (
        spark.readStream.format("kafka")
        .options(**settings)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = records.select("value").writeStream.format("kafka").options(**settings).option("topic", sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def values(spark: SparkSession, topic: str, settings: dict[str, str]) -> set[str]:
    found = spark.read.format("kafka").options(**settings).option("subscribe", topic).load()
    return {bytes(row["value"]).decode() for row in found.select("value").collect()}


def test_it_writes_and_reads_streams_by_sasl_and_by_a_certificate(
    spark: SparkSession, cluster: SecureCluster, tmp_path: Path
) -> None:
    by_sasl = settings_of("Spark", cluster)
    by_certificate = settings_of("Spark with a client certificate", cluster)
    by_certificate["kafka.bootstrap.servers"] = cluster.mutual_bootstrap
    written = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    written.write.format("kafka").options(**by_sasl).option("topic", FIRST).save()
    stream(spark, FIRST, SECOND, by_sasl, tmp_path / "sasl")
    stream(spark, SECOND, THIRD, by_certificate, tmp_path / "certificate")
    assert values(spark, THIRD, by_sasl) == {str(number) for number in range(100)}


def test_a_user_without_acls_and_a_wrong_password_end_the_query_with_kafkas_error(
    spark: SparkSession, cluster: SecureCluster, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="TopicAuthorizationException"):
        stream(spark, FIRST, SECOND, settings_of("Spark", cluster, "bob"), tmp_path / "bob")
    wrong = settings_of("Spark", cluster)
    jaas = wrong["kafka.sasl.jaas.config"].replace(PASSWORDS["alice"], WRONG)
    with pytest.raises(StreamingQueryException, match="SaslAuthenticationException"):
        stream(spark, FIRST, SECOND, wrong | {"kafka.sasl.jaas.config": jaas}, tmp_path / "wrong")
