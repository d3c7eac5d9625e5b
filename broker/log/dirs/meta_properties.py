"""The ``meta.properties`` file, which says whose data a log directory holds; ZooKeeper mode's version 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from broker.log.errors import LogDirError
from broker.log.sealed_file import DamagedFileError, read_file, replace_file

FILE_NAME = "meta.properties"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The contents of ``meta.properties``; a field is None if the file lacks it."""

    broker_id: int | None
    cluster_id: str | None


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """The directory's properties, None if there is no file. Raises LogDirError if the file is invalid."""
    path = directory / FILE_NAME
    try:
        text = read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    except DamagedFileError as error:
        raise LogDirError(str(error)) from error
    properties = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip()
    version = properties.get("version")
    if version != "0":
        raise LogDirError(
            f"{path} has version {version!r}; this broker reads version 0, "
            "as Kafka writes it in ZooKeeper mode"
        )
    broker_id = properties.get("broker.id")
    if broker_id is not None and not broker_id.lstrip("-").isdigit():
        raise LogDirError(f"{path} has broker.id={broker_id!r}, which is not a number")
    return MetaProperties(
        int(broker_id) if broker_id is not None else None, properties.get("cluster.id") or None
    )


def write_meta_properties(directory: Path, broker_id: int, cluster_id: str) -> None:
    """Replaces the directory's file durably. Raises OSError."""
    text = f"#\nbroker.id={broker_id}\nversion=0\ncluster.id={cluster_id}\n"
    replace_file(directory / FILE_NAME, text.encode())


def agreed(key: str, values: Mapping[Path, _T | None]) -> _T | None:
    """The one value of all directories that have one; None if none has.

    Raises LogDirError, with each directory's value, if they differ.
    """
    known = {path: value for path, value in values.items() if value is not None}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{path}: {value}" for path, value in known.items())
        raise LogDirError(f"log.dirs are of different brokers, meta.properties has {key} {listed}")
    return next(iter(known.values()), None)
