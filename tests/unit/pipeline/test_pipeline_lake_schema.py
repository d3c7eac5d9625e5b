"""What schemas a lake takes, and which it can go on with. No Spark runs here."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.errors import SchemaError
from pipeline.lake_schema import check_evolution, check_past, check_schema, load_schema
from pipeline.lifecycle import EVENT_SCHEMA
from pipeline.lifecycle_lake import lifecycle_options_from
from tests.support.lake_jobs import PACE


def struct(**types: DataType) -> StructType:
    """Optional fields; a name that ends in ``_required`` is a required one's."""
    return StructType(
        [StructField(name, kind, not name.endswith("_required")) for name, kind in types.items()]
    )


INT, LONG, TEXT = IntegerType(), LongType(), StringType()


def test_schema_file_says_what_is_required(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    wanted = struct(id_required=TEXT, n=INT, tags=ArrayType(TEXT))
    path.write_text(wanted.json())
    assert load_schema(str(path)) == wanted
    assert load_schema(wanted.json()) == wanted


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("{", "is no schema"),
        ('{"type": "struct"}', "is no schema"),
        ("{}", "is no schema"),
    ],
)
def test_schema_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "events.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SchemaError, match=why) as told:
        load_schema(str(path))
    assert "events.json" in str(told.value)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (StructType([]), "no fields"),
        (struct(blob=BinaryType()), "blob is binary"),
        (struct(inner=struct(blobs=ArrayType(BinaryType()))), r"inner\.blobs\[\] is binary"),
        (struct(counts=MapType(INT, INT)), "keys that are no strings"),
        (StructType([StructField("a", INT), StructField("A", INT)]), "a is named twice"),
        (StructType([StructField("it's", INT)]), "has a quote"),
        (struct(_offset=INT, Late=INT), "columns of its own named _offset, late"),
    ],
)
def test_schema_that_a_lake_cannot_hold_is_refused(schema: StructType, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        check_schema(schema, None, ())


@pytest.mark.parametrize("field", ["absent", "at", "text_required"])
def test_event_time_must_be_a_required_number_or_timestamp(field: str) -> None:
    with pytest.raises(SchemaError, match=f"the event time {field}"):
        check_schema(struct(at=LONG, text_required=TEXT), field, ())


def test_options_may_name_fields_and_the_day_of_the_event_only() -> None:
    schema = struct(at_required=TimestampType(), id=TEXT)
    check_schema(schema, "at_required", ("id", "event_date", "late"))
    with pytest.raises(SchemaError, match="names event_date"):
        check_schema(schema, None, ("event_date",))
    with pytest.raises(SchemaError, match="names other"):
        check_schema(schema, "at_required", ("other",))


def test_optional_field_may_come_and_any_field_may_go_also_inside() -> None:
    old = struct(id_required=TEXT, gone=INT, parts=ArrayType(struct(x=INT)))
    new = struct(id_required=TEXT, parts=ArrayType(struct(x=INT, y=TEXT)), more=MapType(TEXT, INT))
    check_evolution(old, new)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (struct(n=LONG), "n is bigint and was int"),
        (struct(new_required=INT), "the new field new_required must be optional"),
        (struct(parts=ArrayType(struct(x=TEXT))), r"parts\[\]\.x is string and was int"),
        (
            struct(parts=ArrayType(struct(y_required=TEXT))),
            r"the new field parts\[\]\.y_required must be optional",
        ),
        (struct(sums=MapType(TEXT, TEXT)), r"sums\{\} is string and was int"),
    ],
)
def test_change_that_old_files_would_not_survive_is_refused(new: StructType, why: str) -> None:
    old = struct(n=INT, parts=ArrayType(struct(x=INT)), sums=MapType(TEXT, INT))
    with pytest.raises(SchemaError, match=why):
        check_evolution(old, new)


def test_partition_columns_are_held_by_name_for_their_type_is_only_guessed() -> None:
    written = struct(id=TEXT, _offset=LONG, day=INT)
    check_past(written, struct(id=TEXT, day=TEXT), ("day",))
    check_past(None, struct(id=TEXT), ("day",))
    with pytest.raises(SchemaError, match="not partitioned by id"):
        check_past(written, struct(id=TEXT, day=TEXT), ("id",))


def test_lifecycle_preset_is_a_lake_of_version_1() -> None:
    values = dict.fromkeys(("bootstrap_servers", "topics", "output", "checkpoint", "dead_letter_topic"), "x")
    options = lifecycle_options_from({**PACE, **values})
    shape = options.shape()
    assert shape.schema == EVENT_SCHEMA
    assert "schema = 1" in shape.checks
    check_schema(shape.schema, shape.event_time, ("id", *options.partition_by))
