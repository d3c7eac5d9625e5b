"""A lake's schema: read from a text or a file, checked for what a lake can hold, and compared with
existing files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructType, TimestampType

from pipeline.errors import SchemaError, first_line
from pipeline.strict_json import is_supported

EVENT_DATE: Final = "event_date"
LATE: Final = "late"
REST: Final = "_rest"
TIME_COLUMNS: Final = ("_event_time", EVENT_DATE, LATE)
SOURCE_RENAMED: Final = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "kafka_time": "_kafka_time",
}
"""A row's origin, under names that few schemas have."""

RESERVED: Final = frozenset(
    {*SOURCE_RENAMED.values(), *TIME_COLUMNS, REST, "_value", "_text", "_json", "_reason"}
)
_NO_FILES_YET: Final = "Unable to infer schema"  # its condition has another name if the sink's log is empty


def load_schema(given: str) -> StructType:
    """A schema from Spark's JSON (``StructType.json()``), a ``.json`` file with that, or a DDL text.

    ``NOT NULL`` (``"nullable": false``) makes a field required. A DDL text needs a running session.
    Raises ``SchemaError``.
    """
    try:
        text = Path(given).read_text() if given.endswith(".json") else given
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        found = DataType.fromDDL(text)
    except OSError as error:
        raise SchemaError(f"cannot read the schema {given}: {error.strerror}") from error
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise SchemaError(f"{given!r} is no schema: {first_line(error)}") from error
    if not isinstance(found, StructType):
        raise SchemaError(f"{given!r} is one type, not a list of fields such as 'id STRING NOT NULL, n INT'")
    return found


def check_schema(schema: StructType, event_time: str | None, named: Sequence[str]) -> None:
    """Checks that a lake can have these fields.

    ``event_time``: the field with the event's time, required and a whole number or a timestamp. ``named``:
    other fields that options name. Raises ``SchemaError``.
    """
    if not schema.fields:
        raise SchemaError("the schema has no fields")
    for fault in _faults(schema, ""):
        raise SchemaError(fault)
    taken = sorted(RESERVED & {name.lower() for name in schema.names})
    if taken:
        raise SchemaError(f"the lake has columns of its own named {', '.join(taken)}: rename the fields")
    if event_time is not None:
        _check_event_time(schema, event_time)
    for name in named:
        own = TIME_COLUMNS if event_time is not None else ()
        if name not in (*schema.names, *own):
            raise SchemaError(f"an option names {name}, which is no field of the schema")


def _check_event_time(schema: StructType, event_time: str) -> None:
    if event_time not in schema.names:
        raise SchemaError(f"the event time {event_time} is no field of the schema")
    field = schema[event_time]
    if field.nullable or not isinstance(field.dataType, LongType | TimestampType):
        raise SchemaError(f"the event time {event_time} must be BIGINT NOT NULL or TIMESTAMP NOT NULL")


def _faults(data_type: DataType, path: str) -> Iterator[str]:
    if not is_supported(data_type):
        yield f"{path} is {data_type.simpleString()}, which has no strict form in JSON"
    if isinstance(data_type, StructType):
        lower = [name.lower() for name in data_type.names]
        for field in data_type:
            name = f"{path}.{field.name}" if path else field.name
            if set(field.name) & set("'`\n"):
                yield f"{name!r} has a quote or a line's end in its name"
            if lower.count(field.name.lower()) > 1:
                yield f"{name} is named twice (upper and lower case are the same to Spark)"
            yield from _faults(field.dataType, name)
    elif isinstance(data_type, ArrayType):
        yield from _faults(data_type.elementType, f"{path}[]")
    elif isinstance(data_type, MapType):
        yield from _faults(data_type.keyType, f"{path} (its keys)")
        yield from _faults(data_type.valueType, f"{path}{{}}")
        if data_type.keyType.simpleString() != "string":
            yield f"{path} has keys that are no strings: JSON has no others"


def check_evolution(old: StructType, new: StructType) -> None:
    """Checks that a lake of ``old`` rows can get ``new`` ones: old files must be readable beside them.

    A field may be added if it is optional, and may be left out; no field may change its type.
    Raises ``SchemaError``.
    """
    for fault in _changes(old, new, ""):
        raise SchemaError(f"{fault}: the lake's files of before would not be readable beside the new ones")


def _changes(old: DataType, new: DataType, path: str) -> Iterator[str]:
    if isinstance(old, StructType) and isinstance(new, StructType):
        before = {field.name: field for field in old}
        for field in new:
            name = f"{path}.{field.name}" if path else field.name
            if field.name in before:
                yield from _changes(before[field.name].dataType, field.dataType, name)
            elif not field.nullable:
                yield f"the new field {name} must be optional"
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        yield from _changes(old.elementType, new.elementType, f"{path}[]")
    elif isinstance(old, MapType) and isinstance(new, MapType):
        yield from _changes(old.valueType, new.valueType, f"{path}{{}}")
    elif old != new:
        yield f"{path} is {new.simpleString()} and was {old.simpleString()}"


def written_schema(spark: SparkSession, output: str) -> StructType | None:
    """The merged schema of the lake's files, or None when there are none yet. Reads the files' footers."""
    if not _exists(spark, output):  # reading it would fail too, after a page of warnings
        return None
    try:
        return spark.read.option("mergeSchema", "true").parquet(output).schema
    except AnalysisException as error:
        if _NO_FILES_YET in str(error):
            return None
        raise


def _exists(spark: SparkSession, directory: str) -> bool:
    """Uses Hadoop, because the directory may be on any file system; pyspark has no API for this."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(directory)  # noqa: SLF001 (see above)
    return bool(path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path))  # noqa: SLF001


def check_past(written: StructType | None, schema: StructType, partition_by: Sequence[str]) -> None:
    """Checks that the job may continue with a lake that has the schema ``written``. Raises ``SchemaError``.

    Partition columns are last and come from directory names: they are compared only by name.
    """
    if written is None:
        return
    split = len(written.fields) - len(partition_by)
    if tuple(written.names[split:]) != tuple(partition_by):
        raise SchemaError(f"the lake is not partitioned by {', '.join(partition_by)}: begin another one")
    held = [field for field in written.fields[:split] if field.name.lower() not in RESERVED]
    check_evolution(StructType(held), StructType([f for f in schema if f.name not in partition_by]))
