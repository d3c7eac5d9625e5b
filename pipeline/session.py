"""Creates the Spark session of a job: the same under ``spark-submit``, in a test and alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession


def make_session(
    app_name: str,
    *,
    jars: Sequence[Path],
    shuffle_partitions: int,
    master: str | None = None,
    driver_host: str | None = None,
    log_level: str = "WARN",
) -> SparkSession:
    """A session in UTC, with ``jars`` on the class path of driver and executors.

    Under ``spark-submit`` the JVM is already running, and its own ``spark.jars`` applies to the driver.

    ``driver_host``: needed if the machine has several addresses and the executors reach only one of them.
    """
    builder = (
        SparkSession.builder.appName(app_name)
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", shuffle_partitions)
        # Driver and executors share files through their group, and Hadoop has its own umask.
        .config("spark.hadoop.fs.permissions.umask-mode", "002")
        # Three queries in one driver: none of them waits for another's whole batch.
        .config("spark.scheduler.mode", "FAIR")
    )
    if master is not None:
        builder = builder.master(master)
    if driver_host is not None:
        # Spark takes an address of IPv6 in brackets only.
        host = f"[{driver_host}]" if ":" in driver_host and not driver_host.startswith("[") else driver_host
        builder = builder.config("spark.driver.host", host).config("spark.driver.bindAddress", host)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(log_level)
    return session
