"""Log directories that Apache Kafka 3.9.1 wrote: two brokers with groups, transactions and a compacted topic."""

from __future__ import annotations

import tarfile
from pathlib import Path

KAFKA_LOG_DIRS = Path(__file__).parents[1] / "data" / "kafka-3.9.1-log-dirs.tgz"


def logs_of(topic: str, target: Path) -> list[Path]:
    """The segments of the topic's partitions on both brokers, extracted below ``target``."""
    with tarfile.open(KAFKA_LOG_DIRS) as archive:
        members = [m for m in archive.getmembers() if f"{topic}-" in m.name and m.name.endswith(".log")]
        archive.extractall(target, members)  # ours; Debian 12's Python knows no filters yet
    return sorted(target.rglob("*.log"))
