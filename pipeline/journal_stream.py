"""The journal job: the hosts' journals, from the brokers to Parquet, to windows and to dead letters.

Three queries over the same topics, each with its own checkpoint, because each sink keeps another promise:

- ``records`` to Parquet, exactly once. The file sink lists each batch's files in ``_spark_metadata`` by batch
  number, in one atomic step; a batch that is replayed after a crash either is in the list (and is skipped) or
  is not (and the files of the first try are never read, by a reader that goes by that list, as Spark does).
- ``dead letters`` to a topic, at least once, keyed by ``topic-partition-offset``: the second copy is told by
  its key.
- ``windows`` to a topic, at least once, keyed by window, host, unit and priority: a replayed batch computes
  the same whole counts from the same offsets and state, so the second copy says what the first did.

Every input is in the records or in the dead letters. One ``foreachBatch`` over all sinks would read the
brokers once instead of three times, but could not make Parquet and Kafka one atomic step either:
docs/adr/0005 weighs it. What the rows mean is ``transform``'s; starting Spark is ``session``'s; who runs this
is ``fab spark.submit``'s.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Event
from typing import Any

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline import transform
from pipeline.jars import JarError, connector_jars
from pipeline.options import StreamOptions, stream_options
from pipeline.session import make_session

APP_NAME = "landline-journal-stream"
_POLL_S = 1


def read_topics(spark: SparkSession, options: StreamOptions) -> DataFrame:
    """The stream of the topics: key, value, topic, partition, offset, timestamp, timestampType."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topics)
        .option("startingOffsets", options.starting_offsets)
        .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
    )
    if options.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    return reader.load()


def start_queries(spark: SparkSession, options: StreamOptions) -> list[StreamingQuery]:
    """Starts the three queries. Each reads for itself: a slow sink does not hold the others up."""
    rows = transform.parsed(read_topics(spark, options), options.max_ahead)
    entries = transform.records(rows)
    counts = transform.windows(entries, options.window, options.slide, options.watermark)
    parquet = _writer(entries, "records", options).format("parquet").partitionBy("event_date")
    letters = _to_topic(transform.dead_letters(rows), "dead-letters", options.dead_letter_topic, options)
    windows = _to_topic(transform.window_messages(counts), "windows", options.windows_topic, options)
    writers = {"records": parquet.option("path", options.output), "dead-letters": letters, "windows": windows}
    return [_start_in_pool(spark, name, writer) for name, writer in writers.items()]


def _start_in_pool(spark: SparkSession, name: str, writer: DataStreamWriter) -> StreamingQuery:
    """Starts a query in a scheduler pool of its own: within one pool Spark serves first in, first out."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    return writer.start()


def _to_topic(frame: DataFrame, name: str, topic: str, options: StreamOptions) -> DataStreamWriter:
    return (
        _writer(frame, name, options)
        .format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("kafka.acks", "all")
        .option("includeHeaders", "true")
        .option("topic", topic)
    )


def _writer(frame: DataFrame, name: str, options: StreamOptions) -> DataStreamWriter:
    checkpoint = f"{options.checkpoint.rstrip('/')}/{name}"
    writer = frame.writeStream.queryName(name).outputMode("append").option("checkpointLocation", checkpoint)
    if options.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=options.trigger)


def run_until_stopped(spark: SparkSession, queries: list[StreamingQuery], stop: Event) -> None:
    """Returns when ``stop`` is set or all queries have ended; raises what a query died of."""
    while not stop.is_set() and any(query.isActive for query in queries):
        if spark.streams.awaitAnyTermination(timeout=_POLL_S):
            # One has ended: well (the next round waits for the others), or by an exception, which that call
            # raised.
            spark.streams.resetTerminated()
    for query in queries:
        if not stop.is_set() and (error := query.exception()) is not None:
            raise error
        query.stop()


def _stop_on_signal(stop: Event) -> None:
    def set_stop(_number: int, _frame: Any) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, set_stop)
    signal.signal(signal.SIGINT, set_stop)


@click.command()
@stream_options
def main(options: StreamOptions) -> None:
    """Reads journal TOPICS from the brokers; writes Parquet, window counts and dead letters until stopped."""
    os.umask(0o002)  # as session has Hadoop's
    try:
        jars = connector_jars()
    except JarError as error:
        raise click.ClickException(str(error)) from error
    stop = Event()
    spark = make_session(
        APP_NAME,
        jars=jars,
        shuffle_partitions=options.shuffle_partitions,
        master=options.master,
        driver_host=options.driver_host,
        log_level=options.log_level,
    )
    _stop_on_signal(stop)
    try:
        run_until_stopped(spark, start_queries(spark, options), stop)
    except StreamingQueryException as error:
        print(f"error: a query ended: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
