"""Kafka's checkpoint files: a version line, a count line, and one line per entry; replaced atomically.

:mod:`.sealed_file` replaces the files and detects damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.log.sealed_file import DamagedFileError, read_file, replace_file
from broker.utils.topic_partition import TopicPartition

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
VERSION = 0


class CheckpointError(ValueError):
    """The file exists but is not a valid checkpoint. The message names the file."""


class CheckpointVersionError(CheckpointError):
    """The file has a version that this release does not know: a later release wrote it."""


def write_checkpoint(path: Path, lines: Iterable[str], *, sync: bool = True) -> None:
    """Replaces the checkpoint at ``path``. Raises OSError."""
    entries = list(lines)
    text = f"{VERSION}\n{len(entries)}\n" + "".join(f"{line}\n" for line in entries)
    replace_file(path, text.encode(), sync=sync)


def read_checkpoint(path: Path) -> list[list[str]]:
    """The entries at ``path``, split at blanks; [] if the file is missing or empty.

    Kafka creates each checkpoint empty when it first opens the directory. Raises CheckpointError, OSError.
    """
    try:
        text = read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return []
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error
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
        raise CheckpointVersionError(f"{path} has version {version}, known is {VERSION}")
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
        """The offsets in the file; {} if there is no file. Raises CheckpointError, OSError."""
        offsets = {}
        for fields in read_checkpoint(self.path):
            try:
                topic, partition, offset = fields
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError:
                raise CheckpointError(f"{self.path} has a malformed line: {' '.join(fields)}") from None
        return offsets
