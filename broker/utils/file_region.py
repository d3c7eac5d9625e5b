"""A range of an open file that goes from the log to a socket without passing through Python."""

from __future__ import annotations

import os
from io import FileIO
from typing import NamedTuple


class FileRegion(NamedTuple):
    """A range of an open file: ``size`` bytes from ``position``. It keeps the file open, even if the file is
    deleted meanwhile.
    """

    file: FileIO
    position: int
    size: int

    @property
    def is_deleted(self) -> bool:
        """Whether the file's name is gone: its blocks are freed when the last user closes it."""
        return os.fstat(self.file.fileno()).st_nlink == 0


def keep(_file: object) -> None:
    """Uses a file once more, after a call with its descriptor. Compiled code lets go of a variable where it is used
    last: were that the call of ``fileno``, another thread could close the file before its descriptor is used, and
    that may be another file's by then.
    """
