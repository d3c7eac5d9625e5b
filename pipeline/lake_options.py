"""The lake job's command line, and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from pipeline.lake_rows import Shape, Unit
from pipeline.lake_schema import load_schema
from pipeline.options import PACE, SOURCE_AND_SINK, StreamOptions, interval, option, picked, with_options


@dataclass(frozen=True, slots=True)
class LakeOptions(StreamOptions):
    """All options of ``lake``: those of every job, and the shape of the rows. ``schema`` is a DDL text or
    a file.
    """

    schema: str
    event_time: str | None
    time_unit: Unit
    watermark: str
    late: str
    unknown: str
    check: tuple[str, ...]
    deduplicate_by: str | None
    copies_within: str
    partition_by: tuple[str, ...]

    def shape(self) -> Shape:
        """The rows' shape; needs a session for a DDL text. Raises ``SchemaError``."""
        return Shape(
            schema=load_schema(self.schema),
            event_time=self.event_time,
            time_unit=self.time_unit,
            watermark=self.watermark,
            late_to_dead_letters=self.late == "dead-letter",
            keep_rest=self.unknown == "rest",
            checks=self.check,
        )


_LAKE: Final = (
    *SOURCE_AND_SINK,
    option("--topics", "Topics to read, comma-separated.", required=True),
    option("--schema", "The fields: Spark's DDL, or a .json file of a StructType. NOT NULL: required.",
           required=True),
    option("--dead-letter-topic", "Topic for what the schema refuses; TOPICS.dead-letters unless given."),
    option("--event-time", "The field that says when an event was."),
    option("--time-unit", "What a whole number in it counts since 1970.", default="us",
           type=click.Choice(["us", "ms", "s"])),
    option("--watermark", "How long after its time an event may be written and not be late.",
           default="1 hour", callback=interval),
    option("--late", "Late events: into the lake with late=true, or to the dead letters.", default="mark",
           type=click.Choice(["mark", "dead-letter"])),
    option("--unknown", "Fields that the schema does not name: left out, or kept as JSON in _rest.",
           default="ignore", type=click.Choice(["ignore", "rest"])),
    option("--check", "SQL over the fields that must not be false; may be given often.", multiple=True),
    option("--deduplicate-by", "The field by which copies of an event are told."),
    option("--copies-within", "How long after an event its copies are known; the watermark unless given.",
           callback=interval),
    option("--partition-by", "Fields, or event_date, that make the lake's directories; comma-separated."),
    *PACE,
)  # fmt: skip


def lake_options_from(values: dict[str, Any]) -> LakeOptions:
    """The parsed values as options, with defaults that depend on others."""
    names = (name.strip() for name in (values["partition_by"] or "").split(","))
    followed = {
        "dead_letter_topic": values["dead_letter_topic"] or f"{values['topics'].split(',')[0]}.dead-letters",
        "copies_within": values["copies_within"] or values["watermark"],
        "partition_by": tuple(filter(None, names)),
        "check": tuple(values["check"]),
    }
    return picked(LakeOptions, {**values, **followed})


lake_options = with_options(_LAKE, lake_options_from)
