"""The comparison job: computes one ``comparison.json`` from a lake of lifecycle events.

Reads the lake that ``lifecycle_lake`` writes, uses each event once by its ``id``, and writes the figures of
one comparison to a local file, atomically. Spark groups and counts all events; ``comparison`` computes the
figures of the few runs. The same events give the same bytes, whatever their order.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.types import StructType

from pipeline.comparison import FIT_SCENARIO, Inputs, Run, StepSpread, document, to_bytes
from pipeline.errors import PipelineError
from pipeline.jars import JarError, connector_jars
from pipeline.lifecycle import DEAD_LETTERS, EVENT_SCHEMA
from pipeline.session import make_session

APP_NAME = "landline-compare-batch"
_RUN_COLUMNS: Final = ("scenario", "system", "hosts", "round")
_UNKNOWN_TOPIC: Final = "UnknownTopicOrPartition"


def unique_events(spark: SparkSession, lake: str) -> DataFrame:
    """Every event of the lake once, with ``copies``: its number of rows there.

    If copies differ, which they should not, the smallest by its fields is used; any rule that does not depend
    on the order will do. Raises ``PipelineError``.
    """
    try:
        rows = spark.read.schema(StructType(EVENT_SCHEMA.fields)).parquet(lake)
    except AnalysisException as error:
        raise PipelineError(f"there is no lake at {lake}: run the job lifecycle_lake first") from error
    event = F.struct(*(name for name in EVENT_SCHEMA.names))
    once = rows.groupBy("id").agg(F.min(event).alias("event"), F.count("*").alias("copies"))
    return once.select("event.*", "copies")


def run_events(events: DataFrame) -> DataFrame:
    """The runs: one row each, with ``run_id``, ``model`` and the fields of ``run``."""
    found = events.where((F.col("step") == "Run") & F.col("run").isNotNull())
    return found.select("run_id", "model", "run.*")


def chosen_comparison(runs: DataFrame, wanted: str | None) -> str:
    """The requested comparison, or the only one. Raises ``PipelineError``."""
    found = sorted(row[0] for row in runs.select("comparison_id").distinct().collect())
    if wanted is None and len(found) == 1:
        return str(found[0])
    if wanted in found:
        return str(wanted)
    there = ", ".join(found) or "none"
    asked = "give --comparison-id" if wanted is None else f"{wanted} is not among them"
    raise PipelineError(f"{asked}; the lake's comparisons: {there}")


def step_spreads(events: DataFrame) -> list[StepSpread]:
    """The steps of all successful starts in cold starts. ``events`` have their run's columns as ``run_*``."""
    starts = events.where(
        (F.col("kind") == "start") & (F.col("outcome") == "ok") & (F.col("run_scenario") == FIT_SCENARIO)
    )
    role = F.col("role")
    system = (
        F.when(role.isin("broker", "zookeeper"), F.lit("landline"))
        .when(role.startswith("spark-"), F.lit("spark"))
        .otherwise(F.col("run_system"))
    )
    keys = ["role", "model", "system", "hosts", "step"]
    took = starts.select(
        "role",
        "model",
        system.alias("system"),
        F.col("run_hosts").alias("hosts"),
        "step",
        (F.col("end_mono_us") - F.col("start_mono_us")).alias("us"),
    )
    quartiles = F.percentile("us", [0.25, 0.5, 0.75]).alias("quartiles")
    grouped = took.groupBy(*keys).agg(F.count("*").alias("n"), quartiles)
    return [_spread(row) for row in grouped.collect()]


def _spread(row: Row) -> StepSpread:
    values = row.asDict()
    p25, median, p75 = values.pop("quartiles")
    return StepSpread(**values, p25_us=p25, median_us=median, p75_us=p75)


def compare(
    spark: SparkSession, lake: str, comparison_id: str | None = None, dead_letters: int | None = None
) -> bytes:
    """The bytes of ``comparison.json``. Raises ``PipelineError``."""
    events = unique_events(spark, lake).persist()
    try:
        runs = run_events(events)
        chosen = chosen_comparison(runs, comparison_id)
        ours = runs.where(F.col("comparison_id") == chosen)
        # One row per run_id, whatever was published: a join must not multiply the events.
        by_id = ours.groupBy("run_id").agg(F.min(F.struct(*_RUN_COLUMNS)).alias("of"))
        columns = [F.col(f"of.{name}").alias(f"run_{name}") for name in _RUN_COLUMNS]
        joined = events.join(F.broadcast(by_id.select("run_id", *columns)), "run_id")
        counted = joined.agg(F.count("*").alias("events"), F.sum("copies").alias("rows")).first()
        assert counted is not None
        inputs = Inputs(counted["events"], counted["rows"] - counted["events"], dead_letters)
        found = [_run(row) for row in ours.collect()]
        return to_bytes(document(chosen, found, step_spreads(joined), inputs))
    finally:
        events.unpersist()


def _run(row: Row) -> Run:
    values = {name: value for name, value in row.asDict().items() if name != "comparison_id"}
    return Run(**{**values, "actions": tuple(values["actions"])})


def count_dead_letters(spark: SparkSession, bootstrap_servers: str, topic: str) -> int:
    """The number of rejected records: distinct keys, because copies of a letter have the same. No topic
    means none.
    """
    try:
        letters = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )
        return letters.select("key").distinct().count()
    except Exception as error:  # py4j wraps what the connector wraps
        if _UNKNOWN_TOPIC in str(error):
            return 0
        raise


def write_whole(content: bytes, output: Path) -> None:
    """Writes the file atomically, so that nobody sees half of it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = output.with_name(f".{output.name}.tmp")
    beside.write_bytes(content)
    beside.replace(output)


@click.command()
@click.option("--lake", required=True, help="Directory of the lake that lifecycle_lake wrote.")
@click.option("--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Local file.")
@click.option("--comparison-id", help="Which comparison; not needed when the lake has one.")
@click.option("--bootstrap-servers", help="Brokers, to count the dead letters; not counted unless given.")
@click.option("--dead-letter-topic", default=DEAD_LETTERS, show_default=True, help="Where they are.")
@click.option("--master", help="Spark's master; spark-submit's own unless given.")
@click.option(
    "--driver-host", help="Address at which executors reach this driver; Spark's guess unless given."
)
def main(
    *,
    lake: str,
    output: Path,
    comparison_id: str | None,
    bootstrap_servers: str | None,
    dead_letter_topic: str,
    master: str | None,
    driver_host: str | None,
) -> None:
    """Computes the figures of a comparison from the LAKE and writes them to OUTPUT as JSON."""
    os.umask(0o002)  # the same as Hadoop's umask in session
    try:
        jars = connector_jars() if bootstrap_servers else []
    except JarError as error:
        raise click.ClickException(str(error)) from error
    spark = make_session(APP_NAME, jars=jars, shuffle_partitions=4, master=master, driver_host=driver_host)
    try:
        dead = count_dead_letters(spark, bootstrap_servers, dead_letter_topic) if bootstrap_servers else None
        write_whole(compare(spark, lake, comparison_id, dead), output)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        spark.stop()
    print(f"wrote {output}")


if __name__ == "__main__":
    main()
