"""A lake job on its own topics: run in this process's Spark, or as a process that can be killed.

Can also reset a job's directories to the state that a kill during a batch would have left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.lake import start_queries
from pipeline.lake_options import LakeOptions, lake_options_from
from rig.jvm import SHORT_LIVED_JVM
from rig.processes import ManagedProcess
from rig.topics import all_records, create_topic
from rig.wait import wait_until
from tests.support import parquet_sink

ROOT = Path(__file__).resolve().parents[2]
HEADER = "landline.dead-letter."
Place = tuple[str, int, int]
PACE: dict[str, Any] = {
    "trigger": "0 seconds",
    "starting_offsets": "earliest",
    "max_offsets_per_trigger": None,
    "fail_on_data_loss": True,
    "available_now": True,
    "shuffle_partitions": 1,
    "master": None,
    "driver_host": None,
    "log_level": "ERROR",
    "client_config": None,
}


@dataclass(frozen=True, slots=True)
class LakeJob:
    """One lake with one checkpoint; ``options`` are for running to the topic's end in ``spark``."""

    spark: SparkSession
    options: LakeOptions

    @property
    def output(self) -> Path:
        return Path(self.options.output)

    def run(self, **changes: Any) -> None:
        """Writes the current records, and ends; raises the error that ended a query."""
        for query in self.start(**changes):
            query.awaitTermination()

    def start(self, **changes: Any) -> list[StreamingQuery]:
        """Starts the job's queries; the caller must stop those of an endless run."""
        options = replace(self.options, **changes)
        return start_queries(self.spark, options, options.shape())

    def rows(self) -> list[Row]:
        """The lake as its users read it."""
        return self.spark.read.option("mergeSchema", "true").parquet(str(self.output)).collect()

    def places(self) -> Counter[Place]:
        """Every (topic, partition, offset) in the files that the sink's own log lists."""
        found = parquet_sink.rows(self.output, "_topic", "_partition", "_offset")
        return Counter((row["_topic"], row["_partition"], row["_offset"]) for row in found)

    def letters(self) -> dict[Place, str]:
        """The dead letters' reasons by their origin; a second copy of a letter has the key of the first."""
        found = {}
        for message in all_records(self.options.bootstrap_servers, self.options.dead_letter_topic):
            headers = {name: value.decode() for name, value in message.headers()}
            place = (
                headers[HEADER + "topic"],
                int(headers[HEADER + "partition"]),
                int(headers[HEADER + "offset"]),
            )
            assert message.key().decode() == "-".join(map(str, place))
            found[place] = headers[HEADER + "reason"]
        return found

    def inputs(self) -> dict[Place, bytes]:
        """Every record of the topic."""
        topic = self.options.topics
        found = all_records(self.options.bootstrap_servers, topic)
        return {(topic, message.partition(), message.offset()): message.value() for message in found}


def lake_options(directory: Path, **changes: Any) -> LakeOptions:
    """The options of a lake in ``directory``. ``changes`` are values of the command line."""
    given: Mapping[str, Any] = {
        **PACE,
        "output": str(directory / "lake"),
        "checkpoint": str(directory / "checkpoint"),
        "dead_letter_topic": None,
        "event_time": None,
        "time_unit": "us",
        "watermark": "1 hour",
        "late": "mark",
        "unknown": "ignore",
        "check": (),
        "deduplicate_by": None,
        "copies_within": None,
        "partition_by": None,
        **changes,
    }
    return lake_options_from(dict(given))


def lake_job(
    spark: SparkSession, bootstrap: str, directory: Path, topic: str, partitions: int = 2, **changes: Any
) -> LakeJob:
    """A job on a new topic, with a new topic for its dead letters."""
    create_topic(bootstrap, topic, partitions)
    create_topic(bootstrap, f"{topic}.dead-letters", 1)
    return LakeJob(spark, lake_options(directory, bootstrap_servers=bootstrap, topics=topic, **changes))


def produce(bootstrap: str, topic: str, values: Iterable[Any], partition: int | None = None) -> None:
    """Sends each value: bytes unchanged, anything else as JSON; to all partitions in turn unless one
    is given.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    where = {} if partition is None else {"partition": partition}
    for number, value in enumerate(values):
        content = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        producer.produce(topic, content, key=str(number).encode(), **where)
    assert producer.flush(60) == 0


def job_process(module: str, log: Path, *arguments: str) -> ManagedProcess:
    """A job of ``pipeline`` with its own JVM, on local Spark."""
    command = [
        sys.executable,
        "-m",
        f"pipeline.{module}",
        "--master",
        "local[2]",
        "--driver-host",
        "127.0.0.1",
    ]
    options = f"--driver-memory 512m --driver-java-options '{' '.join(SHORT_LIVED_JVM)}'"
    env = {"PYSPARK_SUBMIT_ARGS": f"{options} --conf spark.ui.enabled=false pyspark-shell"}
    return ManagedProcess(module, lambda: [*command, *arguments], log, env=env, cwd=ROOT)


def kill_in_mid_stream(process: ManagedProcess, job: LakeJob, rows: int) -> int:
    """Kills the driver and its JVM with SIGKILL when the lake has this many rows; returns how many it
    had then.
    """
    wait_until(
        lambda: not process.running or job.places().total() >= rows, timeout=240, what=process.log_tail
    )
    assert process.running, process.log_tail()
    os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    return job.places().total()


def torn(job: LakeJob, listed: bool) -> int:
    """Resets the job to the middle of its last batch that wrote files, as a kill there would leave it.

    The files are written. ``listed``: the sink's log names them, and only the checkpoint does not know that
    the batch is done; otherwise neither does. Returns the batch's number.
    """
    log = job.output / "_spark_metadata"
    checkpoint = Path(job.options.checkpoint) / "records"
    batch = max(_number(path) for path in log.glob("[0-9]*") if _has_rows(path))
    _forget(log, batch + 1 if listed else batch)
    _forget(checkpoint / "commits", batch)
    _forget(checkpoint / "offsets", batch + 1)
    return batch


def _has_rows(entry: Path) -> bool:
    """Whether an entry of the sink's log names a file with rows: empty batches write empty files."""
    return any(pq.ParquetFile(path).metadata.num_rows for path in parquet_sink.listed_files(entry))


def _number(entry: Path) -> int:
    """The batch of a log's entry or of its checksum; -1 for other files."""
    name = entry.name.lstrip(".").removesuffix(".crc").removesuffix(".compact")
    return int(name) if name.isdigit() else -1


def _forget(log: Path, first: int) -> None:
    """Removes a log's entries from ``first`` on, with their checksums."""
    for path in log.iterdir():
        if _number(path) >= first:
            path.unlink()
