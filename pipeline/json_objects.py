"""Checks that a record's value is exactly one JSON object in UTF-8, before any field is checked.

Each function returns a reason as text, or null.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)

_OBJECT_START = r"^\s*\{"
NOT_AN_OBJECT = "the value is not a JSON object"


def envelope_fault(value: Column, text: Column) -> Column:
    """What is wrong before the JSON begins. ``text`` is ``value`` as a string."""
    return (
        F.when(value.isNull(), F.lit("the record has no value"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(~text.rlike(_OBJECT_START), F.lit(NOT_AN_OBJECT))
    )


def trailing_fault(text: Column) -> Column:
    """What is wrong after its end: Spark's parsers read the first value of a text and ignore the rest."""
    in_list = F.concat(F.lit("["), text, F.lit("]"))
    alone = F.json_array_length(in_list) == 1
    return F.when(~F.coalesce(alone, F.lit(False)), F.lit("text follows the JSON object"))
