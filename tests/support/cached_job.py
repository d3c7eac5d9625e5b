"""A job that computes numbers once, keeps them in its executors' memory, and adds them up when it is told to go on.

`fab spark.submit tests/support/cached_job.py --args DIRECTORY`: in the directory, which all hosts share, it says what
was computed on which host, and waits for the file `go`.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from rig.wait import wait_until

NUMBERS = 8


def main(directory: Path) -> None:
    def compute(number: int) -> int:
        with (directory / f"computed.{socket.gethostname()}").open("a") as file:
            file.write(f"{number}\n")
        return number

    session = SparkSession.builder.appName("cached").getOrCreate()
    numbers = session.sparkContext.parallelize(range(NUMBERS), NUMBERS).map(compute)
    numbers.persist(StorageLevel.MEMORY_ONLY).count()
    (directory / "cached").touch()
    wait_until((directory / "go").exists, timeout=1200, what="told to go on")
    (directory / "sum").write_text(str(numbers.sum()))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
