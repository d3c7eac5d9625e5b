"""A stretch of an open file, on its way from the log to a socket without passing through Python."""

from __future__ import annotations

from dataclasses import dataclass
from io import FileIO


@dataclass(frozen=True, slots=True)
class FileRegion:
    """``size`` bytes of ``file`` from ``position``. Holding it keeps the file open, though it be deleted meanwhile."""

    file: FileIO
    position: int
    size: int
