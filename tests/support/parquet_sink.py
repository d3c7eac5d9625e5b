"""The Parquet output of a streaming job according to the sink's own log: a file that is not listed does
not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def rows(output: Path, *columns: str) -> list[dict[str, Any]]:
    """The rows of all committed files, as Spark reads them."""
    return [row for path in committed_files(output) for row in pq.ParquetFile(path).read(columns).to_pylist()]


def committed_files(output: Path) -> list[Path]:
    """The files that ``_spark_metadata`` lists, each once: a compacted log repeats earlier entries."""
    logs = sorted((output / "_spark_metadata").glob("[0-9]*"))
    return list(dict.fromkeys(path for log in logs for path in listed_files(log)))


def listed_files(log: Path) -> list[Path]:
    """The files that one entry of ``_spark_metadata`` lists."""
    lines = log.read_text().splitlines()[1:]
    return [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]
