"""A stretch of an open file, on its way from the log to a socket without passing through Python."""

from __future__ import annotations

import os
from io import FileIO
from typing import NamedTuple


class FileRegion(NamedTuple):
    """A stretch of an open file: ``size`` bytes from ``position``. Who has it keeps the file open, even when
    that is deleted meanwhile.
    """

    file: FileIO
    position: int
    size: int

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more: its blocks are free once nobody holds it."""
        return os.fstat(self.file.fileno()).st_nlink == 0
