"""From the source's rows to records and windows: DataFrame in, DataFrame out, no IO.

Everything here is a function of the row (and of the watermark, for the windows), never of the clock.
So a batch that is replayed after a crash gives the same rows again. The sinks' guarantees depend on
this (docs/adr/0005).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.types import IntegerType, LongType

from pipeline.dead_letters import record_key
from pipeline.json_objects import NOT_AN_OBJECT, envelope_fault, trailing_fault
from pipeline.schema import (
    CORRUPT_FIELD,
    CURSOR_FIELD,
    DEFAULT_PRIORITY,
    EVENT_TIME_FIELD,
    JOURNAL_SCHEMA,
    LATEST_MICROS,
    RECORD_COLUMNS,
    UNKNOWN_UNIT,
)


def parsed(source: DataFrame, max_ahead: str) -> DataFrame:
    """Adds to the connector's rows the fields of their JSON, and ``reason``: null if the row is valid.

    ``max_ahead``: a Spark interval. An entry may be at most this much newer than its Kafka record. Otherwise
    one clock in the year 2500 would move the watermark there, and every correct entry would be late.
    """
    text = F.col("value").cast("string")
    micros = F.col(f"journal.{EVENT_TIME_FIELD}").try_cast(LongType())
    rows = source.select(
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("kafka_time"),
        "key",
        "value",
        text.alias("text"),
        F.from_json(
            text, JOURNAL_SCHEMA, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT_FIELD}
        ).alias("journal"),
    )
    in_range = micros.between(1, LATEST_MICROS)
    event_time = F.when(in_range, F.timestamp_micros(micros))
    return rows.withColumn("event_time", event_time).withColumn(
        "reason", _reason(micros, in_range, max_ahead)
    )


def _reason(micros: Column, in_range: Column, max_ahead: str) -> Column:
    """Why a row cannot be used: its first fault, or null."""
    ahead_limit = F.col("kafka_time") + F.expr(f"INTERVAL {max_ahead}")
    broken = F.when(F.col("journal").isNull(), F.lit(NOT_AN_OBJECT)).when(
        F.col(f"journal.{CORRUPT_FIELD}").isNotNull(), F.lit("the value is not valid JSON")
    )
    no_time = (
        F.when(F.col(f"journal.{EVENT_TIME_FIELD}").isNull(), F.lit(f"{EVENT_TIME_FIELD} is missing"))
        .when(micros.isNull() | ~in_range, F.lit(f"{EVENT_TIME_FIELD} is not a time in microseconds"))
        .when(
            F.col("event_time") > ahead_limit,
            F.lit(f"{EVENT_TIME_FIELD} is more than {max_ahead} ahead of the record's own time"),
        )
    )
    text = F.col("text")
    return F.coalesce(envelope_fault(F.col("value"), text), broken, trailing_fault(text), no_time)


def records(rows: DataFrame) -> DataFrame:
    """The valid rows, in the columns of ``schema.RECORD_COLUMNS``."""
    journal = {name: F.col(f"journal.{name}") for name in JOURNAL_SCHEMA.names}
    priority = journal["PRIORITY"].try_cast(IntegerType())
    columns = {
        "event_date": F.to_date("event_time"),
        "cursor": journal[CURSOR_FIELD],
        "host": F.coalesce(journal["_HOSTNAME"], F.col("key").cast("string"), F.lit(UNKNOWN_UNIT)),
        "unit": F.coalesce(journal["_SYSTEMD_UNIT"], F.lit(UNKNOWN_UNIT)),
        "pid": journal["_PID"].try_cast(IntegerType()),
        "priority": F.when(priority.between(0, 7), priority).otherwise(F.lit(DEFAULT_PRIORITY)),
        "identifier": journal["SYSLOG_IDENTIFIER"],
        "transport": journal["_TRANSPORT"],
        "message": journal["MESSAGE"],
    }
    return rows.where(F.col("reason").isNull()).withColumns(columns).select(*RECORD_COLUMNS)


def windows(entries: DataFrame, window: str, slide: str, watermark: str) -> DataFrame:
    """Counts of ``records`` rows per host, unit and priority in each window of event time.

    The shipper delivers at least once, so the same journal entry may be at two offsets. Entries are
    first reduced to one per cursor, as far back as the watermark remembers. A record without a cursor
    counts as itself.
    """
    identity = F.coalesce(F.col("cursor"), record_key())
    once = (
        entries.withColumn("identity", identity)
        .withWatermark("event_time", watermark)
        .dropDuplicatesWithinWatermark(["identity"])
    )
    group = [F.window("event_time", window, slide), F.col("host"), F.col("unit"), F.col("priority")]
    counts = once.groupBy(*group).agg(F.count("*").alias("count"))
    start, end = F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
    return counts.select(start, end, "host", "unit", "priority", "count")


def window_messages(counts: DataFrame) -> DataFrame:
    """Rows of ``windows`` as Kafka messages: a JSON value, and a JSON key of window, host, unit and priority.

    The value is the window's complete count, not an increment: writing it twice under the same key
    changes nothing.
    """
    stamps = {
        name: F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX") for name in ("window_start", "window_end")
    }
    named = counts.withColumns(stamps)
    key = F.struct("window_start", "window_end", "host", "unit", "priority")
    return named.select(
        F.to_json(key).cast("binary").alias("key"),
        F.to_json(F.struct("*")).cast("binary").alias("value"),
    )
