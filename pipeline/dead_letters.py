"""Unusable records as Kafka messages: the original bytes, with the reason and the origin in headers."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)

from pipeline.schema import HEADER_PREFIX, SOURCE_COLUMNS


def record_key() -> Column:
    """A record's identity as text: ``topic-partition-offset``."""
    return F.concat_ws("-", "topic", "partition", "offset")


def dead_letters(rows: DataFrame) -> DataFrame:
    """The rows that have a ``reason``, as key, value and headers. They also need ``SOURCE_COLUMNS``
    and ``value``.

    The key is ``topic-partition-offset``, so a consumer, or compaction, can drop the second copy of a
    replayed batch.
    """
    reported = {"reason": F.col("reason"), "timestamp": F.unix_millis("kafka_time").cast("string")}
    reported |= {name: F.col(name).cast("string") for name in SOURCE_COLUMNS[:3]}
    headers = [
        F.struct(F.lit(HEADER_PREFIX + name).alias("key"), F.encode(value, "UTF-8").alias("value"))
        for name, value in reported.items()
    ]
    return rows.where(F.col("reason").isNotNull()).select(
        record_key().cast("binary").alias("key"), "value", F.array(*headers).alias("headers")
    )
