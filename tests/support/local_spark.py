"""A small Spark in this test process, with an orderly shutdown.

``SparkSession.stop`` leaves the JVM and py4j's sockets until the end of the process, and warnings are errors
here. So ``local_spark`` closes the gateway as well, and modules that use it have ``SPARK_WARNINGS``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rig.jvm import SHORT_LIVED_JVM

SPARK_WARNINGS = [
    # py4j leaves pooled sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@contextmanager
def local_spark(
    name: str, warehouse: Path, cores: int = 1, jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session on ``cores`` local threads with one shuffle partition, in UTC, without a web UI."""
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", " ".join(SHORT_LIVED_JVM))
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()
        _close_gateway()


def _close_gateway() -> None:
    """Ends the JVM that pyspark started for this process; the next session starts another one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc  # type: ignore[attr-defined]
    gateway.shutdown()
    process.stdin.close()
    process.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
    gc.collect()
