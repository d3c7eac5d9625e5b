"""The lake job: any topic of JSON objects to Parquet, each event checked against a schema, exactly once.

Two queries over the same topics, each with its own checkpoint (docs/adr/0005). One writes rows to Parquet,
exactly once. The other writes what the schema rejects to a dead-letter topic, at least once and keyed by its
place. Every record is one or the other. ``lake_rows`` defines the rows, ``strict_json`` the fields;
docs/lake.md is the user's guide.
"""

from __future__ import annotations

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.dead_letters import dead_letters
from pipeline.lake_options import LakeOptions, lake_options
from pipeline.lake_rows import Shape, bad_rows, checked, good_rows, once_each
from pipeline.lake_schema import check_past, check_schema, written_schema
from pipeline.streams import parquet_writer, read_topics, run_job, start_all, topic_writer

APP_NAME = "landline-lake"


def start_queries(spark: SparkSession, options: LakeOptions, shape: Shape) -> list[StreamingQuery]:
    """Starts both queries on a lake that can accept the schema. Raises ``SchemaError``."""
    names = (*options.partition_by, *filter(None, [options.deduplicate_by]))
    check_schema(shape.schema, shape.event_time, names)
    check_past(written_schema(spark, options.output), shape.schema, options.partition_by)
    rows = checked(read_topics(spark, options), shape)
    letters = dead_letters(bad_rows(rows))
    records = good_rows(rows, shape)
    if options.deduplicate_by:
        # The watermark moves with every batch, so each would be followed by an empty batch with an
        # empty file.
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        records = once_each(records, options.deduplicate_by, options.copies_within)
    writers = {
        "records": parquet_writer(records, "records", options, options.partition_by),
        "dead-letters": topic_writer(letters, "dead-letters", options.dead_letter_topic, options),
    }
    return start_all(spark, writers)


@click.command()
@lake_options
def main(options: LakeOptions) -> None:
    """Reads TOPICS of JSON objects; writes those that fit SCHEMA to Parquet and the others to dead letters."""
    run_job(APP_NAME, options, lambda spark: start_queries(spark, options, options.shape()))


if __name__ == "__main__":
    main()
