"""The common part of all streaming jobs: read topics, start one query per sink, run until stopped or failed.

Each sink has its own query, checkpoint and scheduler pool: docs/adr/0005 explains why.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.client_config import client_settings
from pipeline.errors import PipelineError
from pipeline.jars import JarError, connector_jars
from pipeline.options import StreamOptions
from pipeline.session import make_session

_POLL_S = 1


def read_topics(spark: SparkSession, options: StreamOptions) -> DataFrame:
    """The stream of the topics: key, value, topic, partition, offset, timestamp, timestampType."""
    reader = (
        spark.readStream.format("kafka")
        .options(**client_settings(options.client_config))
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topics)
        .option("startingOffsets", options.starting_offsets)
        .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
    )
    if options.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    return reader.load()


def writer(frame: DataFrame, name: str, options: StreamOptions) -> DataStreamWriter:
    """A query's writer without a sink, with the checkpoint ``name`` below the job's."""
    checkpoint = f"{options.checkpoint.rstrip('/')}/{name}"
    append = frame.writeStream.queryName(name).outputMode("append").option("checkpointLocation", checkpoint)
    if options.available_now:
        return append.trigger(availableNow=True)
    return append.trigger(processingTime=options.trigger)


def parquet_writer(
    frame: DataFrame, name: str, options: StreamOptions, partition_by: tuple[str, ...]
) -> DataStreamWriter:
    """Writes rows to the job's output, exactly once."""
    parquet = writer(frame, name, options).format("parquet").option("path", options.output)
    return parquet.partitionBy(*partition_by) if partition_by else parquet


def topic_writer(frame: DataFrame, name: str, topic: str, options: StreamOptions) -> DataStreamWriter:
    """Writes rows of key, value and headers to a topic, at least once."""
    return (
        writer(frame, name, options)
        .format("kafka")
        .options(**client_settings(options.client_config))
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("kafka.acks", "all")
        .option("includeHeaders", "true")
        .option("topic", topic)
    )


def start_all(spark: SparkSession, writers: Mapping[str, DataStreamWriter]) -> list[StreamingQuery]:
    """Starts each query in its own scheduler pool: within one pool Spark schedules first in, first out."""
    queries = []
    for name, each in writers.items():
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        queries.append(each.start())
    return queries


def run_until_stopped(spark: SparkSession, queries: list[StreamingQuery], stop: Event) -> None:
    """Returns when ``stop`` is set or all queries have ended; raises the error that ended a query."""
    while not stop.is_set() and any(query.isActive for query in queries):
        if spark.streams.awaitAnyTermination(timeout=_POLL_S):
            # A query has ended: normally (the next round waits for the others), or with an exception, which
            # that call raised.
            spark.streams.resetTerminated()
    for query in queries:
        if not stop.is_set() and (error := query.exception()) is not None:
            raise error
        query.stop()


def run_job(
    app_name: str, options: StreamOptions, start: Callable[[SparkSession], list[StreamingQuery]]
) -> None:
    """A whole job: jars, session, and the queries of ``start``, until SIGTERM; exits with 1 when
    one fails.
    """
    os.umask(0o002)  # the same as Hadoop's umask in session
    try:
        jars = connector_jars()
    except JarError as error:
        raise click.ClickException(str(error)) from error
    stop = Event()
    spark = make_session(
        app_name,
        jars=jars,
        shuffle_partitions=options.shuffle_partitions,
        master=options.master,
        driver_host=options.driver_host,
        log_level=options.log_level,
    )
    _stop_on_signal(stop)
    try:
        run_until_stopped(spark, start(spark), stop)
    except StreamingQueryException as error:
        print(f"error: a query ended: {error}", file=sys.stderr)
        sys.exit(1)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        spark.stop()


def _stop_on_signal(stop: Event) -> None:
    def set_stop(_number: int, _frame: Any) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, set_stop)
    signal.signal(signal.SIGINT, set_stop)
