"""Whether this release can read the files of a log directory: a later release may have written them.

``landline check-config`` asks before a broker is stopped for another release. What a start does about such files
is each reader's own decision: most are only a loss of time, and are made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from broker import __version__
from broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    CheckpointVersionError,
    read_checkpoint,
)
from broker.log.dirs.meta_properties import read_meta_properties
from broker.log.errors import LogDirError

_REMEDY: Final = (
    "a later release wrote it. Let that release run with the inter.broker.protocol.version of this one until it has "
    "written the older format, and then go back"
)
# Files whose content is in no other place.
_CHECKPOINTS: Final = (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)


def unreadable_files(directories: Iterable[Path]) -> str:
    """A line for each file in these log directories that this release cannot read, and one that says what to do;
    empty if there is no such file. A directory that is missing, or that the caller may not read, has none.
    """
    found = []
    for directory in directories:
        try:
            read_meta_properties(directory)
        except LogDirError as error:
            found.append(str(error))
        except OSError:
            continue
        found += [said for name in _CHECKPOINTS if (said := _later(directory / name))]
    return "\n".join([*found, f"landline: {__version__} cannot read this: {_REMEDY}"]) if found else ""


def _later(checkpoint: Path) -> str:
    """That a later release wrote the checkpoint; empty if it did not."""
    try:
        read_checkpoint(checkpoint)
    except CheckpointVersionError as error:
        return str(error)
    except (CheckpointError, OSError):
        return ""
    return ""
