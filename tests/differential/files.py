"""The files of topics, as plain values: their names, the records in their logs, and the epochs of their leaders."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tests.differential.plain import Plain, plain_batches

EPOCHS = "leader-epoch-checkpoint"


def plain_files(log_dir: Path, topics: Collection[str]) -> Plain:
    """The partitions of these topics, each with its files. Deleted ones that wait for their removal are left out."""
    found = []
    for directory in sorted(log_dir.iterdir()):
        topic, _, number = directory.name.rpartition("-")
        if topic not in topics or not number.isdigit():
            continue
        names = sorted(each.name for each in directory.iterdir())
        logs = [
            {"name": name, "records": plain_batches((directory / name).read_bytes())}
            for name in names
            if name.endswith(".log")
        ]
        found.append(
            {
                "name": directory.name,
                "files": [{"name": name, "is": "there"} for name in names],
                "logs": logs,
                "epochs": (directory / EPOCHS).read_text() if EPOCHS in names else None,
            }
        )
    return {"partitions": found}
