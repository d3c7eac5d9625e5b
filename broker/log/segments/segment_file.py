"""A segment's open file.

Never compiled: mypyc's classes may not inherit from a type of C's (its object would overlap FileIO's), and nothing
refers to them weakly.
"""

from __future__ import annotations

from io import FileIO


class SegmentFile(FileIO):
    """A file that closes itself silently when its last reference goes.

    Never close it explicitly: a region of it may be on its way to a socket, and its descriptor would be
    reused. For the same reason, hold the file while you use its descriptor: the segment may drop the file at
    any time.
    """

    def __del__(self) -> None:
        self.close()


class FileSlot:
    """Where a segment has its file while it is open. ``stays``: until it is let go of; else the file is closed when
    too many are open.
    """

    __slots__ = ("__weakref__", "file", "stays")

    def __init__(self) -> None:
        self.file: SegmentFile | None = None
        self.stays = False
