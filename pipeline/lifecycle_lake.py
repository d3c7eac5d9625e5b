"""The lake job for the topic of lifecycle events: version 1 of their schema, one row per ``id``.

Publishing is at least once, and a stopped broker publishes its end with its next start. So copies
are recognized for a day, and an event that comes more than an hour after its time is marked as late,
not rejected.
"""

from __future__ import annotations

from typing import Any, Final

import click

from pipeline.lake import start_queries
from pipeline.lake_options import LakeOptions
from pipeline.lifecycle import CHECKS, DEAD_LETTERS, EVENT_SCHEMA, TOPIC
from pipeline.options import PACE, SOURCE_AND_SINK, option, picked, with_options
from pipeline.streams import run_job

APP_NAME = "landline-lifecycle-lake"

_FLAGS: Final = (
    *SOURCE_AND_SINK,
    option("--topics", "Topics to read, comma-separated.", default=TOPIC),
    option("--dead-letter-topic", "Topic for what is no event of version 1.", default=DEAD_LETTERS),
    *PACE,
)


def lifecycle_options_from(values: dict[str, Any]) -> LakeOptions:
    """The lake's options, with all presets."""
    preset = {
        "schema": EVENT_SCHEMA.json(),
        "event_time": "end_us",
        "time_unit": "us",
        "watermark": "1 hour",
        "late": "mark",
        "unknown": "ignore",
        "check": CHECKS,
        "deduplicate_by": "id",
        "copies_within": "1 day",
        "partition_by": ("event_date",),
    }
    return picked(LakeOptions, {**values, **preset})


@click.command()
@with_options(_FLAGS, lifecycle_options_from)
def main(options: LakeOptions) -> None:
    """Reads lifecycle events; writes each once to Parquet, partitioned by day, and the others to dead letters."""
    run_job(APP_NAME, options, lambda spark: start_queries(spark, options, options.shape()))


if __name__ == "__main__":
    main()
