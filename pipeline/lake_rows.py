"""From a topic's records to a lake's rows and to dead letters: DataFrame in, DataFrame out, no IO.

Whether a record is a row, late, or a dead letter depends on the record alone, never on the clock or on other
records in its batch. So a replayed batch gives the same result (docs/adr/0005), and so do two jobs that
divide the topic into different batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.types import StructType, TimestampType

from pipeline import strict_json
from pipeline.errors import SchemaError, first_line
from pipeline.json_objects import envelope_fault, trailing_fault
from pipeline.lake_schema import EVENT_DATE, LATE, REST, SOURCE_RENAMED
from pipeline.schema import LATEST_MICROS

Unit = Literal["us", "ms", "s"]
_MICROS: Final[dict[Unit, int]] = {"us": 1, "ms": 1000, "s": 1_000_000}


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a lake's rows. Intervals are Spark's texts.

    ``event_time``: the field with the event's time, whole numbers in ``time_unit``. An event is late if it
    was written to its topic more than ``watermark`` after that. ``checks``: SQL over the fields. A row for
    which one is false is a dead letter; a row for which one is null is not, as with SQL's CHECK.
    """

    schema: StructType
    event_time: str | None = None
    time_unit: Unit = "us"
    watermark: str = "1 hour"
    late_to_dead_letters: bool = False
    keep_rest: bool = False
    checks: tuple[str, ...] = ()


def checked(source: DataFrame, shape: Shape) -> DataFrame:
    """The connector's rows with the schema's fields, the lake's own columns, and ``_reason``: null if the row
    is valid.

    Raises ``SchemaError`` for a check that is no condition over the fields.
    """
    text, json = F.col("_text"), F.col("_json")
    rows = source.select(
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_kafka_time"),
        F.col("value").alias("_value"),
        F.col("value").cast("string").alias("_text"),
    ).select("*", _once(strict_json.parse(text)).alias("_json"))
    no_json = F.when(json.isNull(), F.lit("the value is not valid JSON, or names a field twice"))
    broken = F.coalesce(
        envelope_fault(F.col("_value"), text),
        no_json,
        trailing_fault(text),
        strict_json.fault(json, shape.schema),
    )
    fields = strict_json.typed(json, shape.schema)
    if shape.keep_rest:
        fields[REST] = strict_json.rest(json, shape.schema)
    return _judged(_timed(rows.withColumn("_reason", broken).withColumns(fields), shape), shape)


def _once(costly: Column) -> Column:
    """The same value, computed once per row: as a list's only element, taken out of it.

    Spark moves a condition below the projection that made its columns, and copies their expressions
    into it. The JSON would be parsed again for each time that a condition names it. Spark moves none
    below a generator.
    """
    return F.explode(F.array(costly))


def _timed(rows: DataFrame, shape: Shape) -> DataFrame:
    """Adds the event's time, its day, and whether it is late; without an event time nothing."""
    if shape.event_time is None:
        return rows
    limit = F.col("_kafka_time") - F.expr(f"INTERVAL {shape.watermark}")
    return rows.withColumn("_event_time", _moment(shape)).withColumns(
        {EVENT_DATE: F.to_date("_event_time"), LATE: F.col("_event_time") < limit}
    )


def _moment(shape: Shape) -> Column:
    """The event time as a timestamp; null if its number is outside Spark's calendar."""
    assert shape.event_time is not None
    value = named(shape.event_time)
    if isinstance(shape.schema[shape.event_time].dataType, TimestampType):
        return value
    factor = _MICROS[shape.time_unit]
    in_range = value.between(1, LATEST_MICROS // factor)
    return F.timestamp_micros(F.when(in_range, F.try_multiply(value, F.lit(factor))))


def _judged(rows: DataFrame, shape: Shape) -> DataFrame:
    """Adds to ``_reason`` the faults of values: no valid time, late, a failed check."""
    faults = [F.col("_reason")]
    if shape.event_time is not None:
        no_time = F.lit(f"{shape.event_time} is not a time in {shape.time_unit} between 1970 and 9999")
        faults.append(F.when(F.col("_event_time").isNull(), no_time))
        if shape.late_to_dead_letters:
            late = F.lit(
                f"late: {shape.event_time} is more than {shape.watermark} before the record's own time"
            )
            faults.append(F.when(F.col(LATE), late))
    for check in shape.checks:
        try:
            failed = ~F.expr(check)
            rows.select(failed)
        except PySparkException as error:
            raise SchemaError(f"{check!r} is no check of the fields: {first_line(error)}") from error
        faults.append(F.when(failed, F.lit(f"check failed: {check}")))
    return rows.withColumn("_reason", F.coalesce(*faults))


def good_rows(rows: DataFrame, shape: Shape) -> DataFrame:
    """The rows for the lake: the fields, then the lake's own columns."""
    own = ["_event_time", EVENT_DATE, LATE] if shape.event_time is not None else []
    rest = [REST] if shape.keep_rest else []
    columns = [named(name) for name in (*shape.schema.names, *rest, *own, *SOURCE_RENAMED.values())]
    return rows.where(F.col("_reason").isNull()).select(*columns)


def bad_rows(rows: DataFrame) -> DataFrame:
    """The other rows, in the form for ``dead_letters``: origin, value, reason."""
    where_from = [F.col(renamed).alias(name) for name, renamed in SOURCE_RENAMED.items()]
    columns = [*where_from, F.col("_value").alias("value"), F.col("_reason").alias("reason")]
    return rows.where(F.col("_reason").isNotNull()).select(*columns)


def once_each(rows: DataFrame, key: str, within: str) -> DataFrame:
    """The rows without copies: of those with the same ``key``, read within ``within`` of the first,
    the first.

    The batch's time counts, which the checkpoint keeps, so a replayed batch gives the same result. By event
    time Spark would silently drop rows behind its watermark, which follows the newest event of the whole
    stream, even one in another partition. A row without a key is never a copy.
    """
    identity = F.concat_ws("-", *list(SOURCE_RENAMED.values())[:3])
    helpers = {
        "_read_time": F.current_timestamp(),
        "_keyless": F.when(named(key).isNull(), identity),
    }
    told = rows.withColumns(helpers).withWatermark("_read_time", within)
    return told.dropDuplicatesWithinWatermark([key, "_keyless"]).drop(*helpers)


def named(name: str) -> Column:
    """A field by its name, whatever characters the name has."""
    return F.col(f"`{name}`")
