"""Kafka's checkpoint files: a version line, a count line, one line an entry; replaced atomically.

Written to a ``.tmp`` beside it, synced, renamed: a reader sees the old file or the new one, whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.log.segment import sync_dir
from broker.utils.topic_partition import TopicPartition

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
TEMPORARY_SUFFIX = ".tmp"
VERSION = 0


class CheckpointError(ValueError):
    """The file is there but is no checkpoint. The message names it."""


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replaces ``path`` by ``data``, atomically; ``sync`` makes it durable too. Raises OSError."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    if sync:
        sync_dir(path.parent)


def write_checkpoint(path: Path, lines: Iterable[str], *, sync: bool = True) -> None:
    """Replaces the checkpoint at ``path``. Raises OSError."""
    entries = list(lines)
    text = f"{VERSION}\n{len(entries)}\n" + "".join(f"{line}\n" for line in entries)
    replace_file(path, text.encode(), sync=sync)


def read_checkpoint(path: Path) -> list[list[str]]:
    """The entries at ``path``, split at blanks; [] when there is no file, or none of its lines yet.

    Kafka makes each checkpoint empty when it first opens the directory. Raises CheckpointError, OSError.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return []
    lines = text.splitlines()
    if not lines:
        return []
    try:
        version, count = int(lines[0]), int(lines[1])
    except (IndexError, ValueError):
        raise CheckpointError(f"{path} does not begin with a version and a count") from None
    entries = [line.split() for line in lines[2:] if line]
    if not text.endswith("\n"):
        raise CheckpointError(f"{path} ends in the middle of a line")
    if version != VERSION:
        raise CheckpointError(f"{path} has version {version}, known is {VERSION}")
    if len(entries) != count:
        raise CheckpointError(f"{path} announces {count} entries and has {len(entries)}")
    return entries


class OffsetCheckpoint:
    """A file of ``topic partition offset`` lines in a log directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / name

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the file. Raises OSError."""
        write_checkpoint(self.path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()))

    def read(self) -> dict[TopicPartition, int]:
        """What the file says, {} without one. Raises CheckpointError, OSError."""
        offsets = {}
        for fields in read_checkpoint(self.path):
            try:
                topic, partition, offset = fields
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError:
                raise CheckpointError(f"{self.path} has a malformed line: {' '.join(fields)}") from None
        return offsets
