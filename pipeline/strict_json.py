"""Checks a JSON object against a schema, field by field: no value is silently cast or becomes null.

``from_json`` would read the number 7 into a string and omit what it cannot read. Here the JSON is parsed into
Spark's variant, which keeps the type of each value, and a value is accepted only if it has the right one: an
integer for an integer type and within its range, a number for a floating one, text for a string. JSON has no
times: they are text in RFC 3339, with an offset (``timestamp``), without (``timestamp_ntz``), or only a day
(``date``). A JSON null is a missing value.

Everything is an expression over columns; no Python runs on the executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_WHOLE: Final = "^BIGINT$"
_NUMBER: Final = r"^(BIGINT|DOUBLE|DECIMAL\(.*)$"
_TEXT: Final = "^STRING$"
_DAY: Final = r"\d{4}-\d{2}-\d{2}"
_CLOCK: Final = r"[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"

# The variant's schema that each type requires.
_KINDS: Final[dict[type[DataType], str]] = {
    StringType: _TEXT,
    BooleanType: "^BOOLEAN$",
    ByteType: _WHOLE,
    ShortType: _WHOLE,
    IntegerType: _WHOLE,
    LongType: _WHOLE,
    FloatType: _NUMBER,
    DoubleType: _NUMBER,
    DecimalType: r"^(BIGINT|DECIMAL\(.*)$",
    DateType: _TEXT,
    TimestampType: _TEXT,
    TimestampNTZType: _TEXT,
    ArrayType: "^ARRAY<",
    MapType: "^OBJECT<",
    StructType: "^OBJECT<",
}

# The form of a text before it is cast: Spark would accept "2026" as a time.
_LOOKS: Final[dict[type[DataType], str]] = {
    DateType: f"^{_DAY}$",
    TimestampType: rf"^{_DAY}{_CLOCK}(Z|[+-]\d{{2}}:\d{{2}})$",
    TimestampNTZType: f"^{_DAY}{_CLOCK}$",
}

ROOT: Final = "$"


def is_supported(data_type: DataType) -> bool:
    """Whether a field may have the type, without its inner types."""
    return type(data_type) in _KINDS


def parse(text: Column) -> Column:
    """The text as a variant; null if it is not JSON, or names a field twice."""
    return F.try_parse_json(text)


def fault(json: Column, schema: StructType) -> Column:
    """The first fault in the fields of a variant that is an object: text, or null."""
    return F.coalesce(*_field_faults(json, ROOT, schema, ""), F.lit(None))


def typed(json: Column, schema: StructType) -> dict[str, Column]:
    """Each field as a column of its type; null where ``fault`` would report it."""
    return {field.name: _typed(json, _below(ROOT, field.name), field.dataType) for field in schema}


def rest(json: Column, schema: StructType) -> Column:
    """The fields that the schema does not name, as the text of a JSON object; null when there are none."""
    members = F.try_variant_get(json, ROOT, "map<string,variant>")
    unknown = F.map_filter(members, lambda name, _value: ~name.isin(schema.names))
    return F.when(F.size(unknown) > 0, F.to_json(unknown))


def _below(path: str, name: str) -> str:
    return f"{path}['{name}']"


def _variant(json: Column, path: str) -> Column:
    return json if path == ROOT else F.try_variant_get(json, path, "variant")


def _is_missing(value: Column) -> Column:
    return value.isNull() | F.is_variant_null(value)


def _field_faults(json: Column, path: str, schema: StructType, title: str) -> Iterator[Column]:
    for field in schema:
        name, place = f"{title}{field.name}", _below(path, field.name)
        absent = F.lit(None) if field.nullable else F.lit(f"{name} is missing")
        yield F.when(_is_missing(_variant(json, place)), absent).otherwise(
            _type_fault(json, place, field.dataType, name)
        )


def _type_fault(json: Column, path: str, wanted: DataType, name: str) -> Column:
    """The fault of a value that is present."""
    kind = F.schema_of_variant(_variant(json, path))
    word = F.regexp_extract(kind, r"^\w+", 0)
    told = F.concat(F.lit(f"{name} is of type "), word, F.lit(f", not {wanted.simpleString()}"))
    other_kind = F.when(~kind.rlike(_KINDS[type(wanted)]), told)
    return F.coalesce(other_kind, *_inner_faults(json, path, wanted, name))


def _inner_faults(json: Column, path: str, wanted: DataType, name: str) -> Iterator[Column]:
    """The faults inside a value of the right kind."""
    if isinstance(wanted, StructType):
        yield from _field_faults(json, path, wanted, f"{name}.")
    elif isinstance(wanted, ArrayType):
        elements = F.try_variant_get(json, path, "array<variant>")
        yield _member_fault(elements, wanted.elementType, wanted.containsNull, f"{name}[]")
    elif isinstance(wanted, MapType):
        values = F.map_values(F.try_variant_get(json, path, "map<string,variant>"))
        yield _member_fault(values, wanted.valueType, wanted.valueContainsNull, f"{name}{{}}")
    elif not isinstance(wanted, StringType | BooleanType):
        yield F.when(~_fits(json, path, wanted), F.lit(f"{name} is no {wanted.simpleString()}"))


def _member_fault(members: Column, wanted: DataType, may_be_null: bool, name: str) -> Column:
    """The first fault among an array's elements or a map's values."""
    absent = F.lit(None) if may_be_null else F.lit(f"{name} is missing")

    def of_one(member: Column) -> Column:
        return F.when(_is_missing(member), absent.cast("string")).otherwise(
            _type_fault(member, ROOT, wanted, name)
        )

    return F.get(F.filter(F.transform(members, of_one), lambda found: found.isNotNull()), F.lit(0))


def _fits(json: Column, path: str, wanted: DataType) -> Column:
    """Whether a number is in its type's range and exact in it, or a text is a valid time."""
    value = F.try_variant_get(json, path, wanted.simpleString())
    fits = value.isNotNull()
    if isinstance(wanted, DecimalType):
        digits = F.regexp_extract(F.schema_of_variant(_variant(json, path)), r",(\d+)\)", 1)
        fits &= F.coalesce(digits.try_cast("int"), F.lit(0)) <= wanted.scale
    elif isinstance(wanted, FloatType | DoubleType):
        fits &= F.abs(value) != F.lit(float("inf"))
    elif looks := _LOOKS.get(type(wanted)):
        fits &= F.try_variant_get(json, path, "string").rlike(looks)
    return F.coalesce(fits, F.lit(False))


def _typed(json: Column, path: str, wanted: DataType) -> Column:
    if isinstance(wanted, StructType):
        members = [
            _typed(json, _below(path, field.name), field.dataType).alias(field.name) for field in wanted
        ]
        return F.when(~_is_missing(_variant(json, path)), F.struct(*members))
    if isinstance(wanted, ArrayType):
        element = wanted.elementType
        return F.transform(
            F.try_variant_get(json, path, "array<variant>"), lambda each: _typed(each, ROOT, element)
        )
    if isinstance(wanted, MapType):
        values = wanted.valueType
        return F.transform_values(
            F.try_variant_get(json, path, "map<string,variant>"),
            lambda _name, each: _typed(each, ROOT, values),
        )
    return F.try_variant_get(json, path, wanted.simpleString())
