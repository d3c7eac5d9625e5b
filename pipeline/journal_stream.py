"""The journal job: the hosts' journals, from the brokers to Parquet, to windows and to dead letters.

Three queries over the same topics, each with its own checkpoint, because each sink has another guarantee:

- ``records`` to Parquet, exactly once. The file sink lists each batch's files in ``_spark_metadata`` by batch
  number, in one atomic step. A batch that is replayed after a crash is either in the list (and is skipped) or
  not (and the files of the first try are never read by a reader that uses the list, as Spark does).
- ``dead letters`` to a topic, at least once, keyed by ``topic-partition-offset``: the key identifies the
  second copy.
- ``windows`` to a topic, at least once, keyed by window, host, unit and priority: a replayed batch computes
  the same complete counts from the same offsets and state, so the second copy equals the first.

Every input is in the records or in the dead letters. One ``foreachBatch`` over all sinks would read from the
brokers once instead of three times, but could not write Parquet and Kafka in one atomic step either:
docs/adr/0005 discusses it. ``transform`` defines the rows, ``streams`` runs the queries, and ``fab
spark.submit`` runs the job.
"""

from __future__ import annotations

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline import transform
from pipeline.dead_letters import dead_letters
from pipeline.options import JournalOptions, journal_options
from pipeline.streams import parquet_writer, read_topics, run_job, start_all, topic_writer

APP_NAME = "landline-journal-stream"


def start_queries(spark: SparkSession, options: JournalOptions) -> list[StreamingQuery]:
    """Starts the three queries. Each reads for itself, so a slow sink does not delay the others."""
    rows = transform.parsed(read_topics(spark, options), options.max_ahead)
    entries = transform.records(rows)
    counts = transform.windows(entries, options.window, options.slide, options.watermark)
    messages = transform.window_messages(counts)
    writers = {
        "records": parquet_writer(entries, "records", options, ("event_date",)),
        "dead-letters": topic_writer(dead_letters(rows), "dead-letters", options.dead_letter_topic, options),
        "windows": topic_writer(messages, "windows", options.windows_topic, options),
    }
    return start_all(spark, writers)


@click.command()
@journal_options
def main(options: JournalOptions) -> None:
    """Reads journal TOPICS from the brokers; writes Parquet, window counts and dead letters until stopped."""
    run_job(APP_NAME, options, lambda spark: start_queries(spark, options))


if __name__ == "__main__":
    main()
