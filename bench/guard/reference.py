"""The unit of costs: two fixed loops that are independent of the broker.

A request is part interpreter, part kernel and memory, and machines differ in the two by different factors. So
there is a loop for each: one computes, like a small request; one moves bytes, like a large one. Both use the
standard library only, so that a change of the broker cannot change them. They take about the same time, and
are timed between the slices of the workloads. **Changing them invalidates every baseline.**
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_STEPS: Final = 60
_MOVES: Final = 8
_PIECE: Final = bytes(range(256)) * 64
_FIELDS: Final = struct.Struct(">hhih")


@dataclass(frozen=True, slots=True)
class ReferenceCost:
    """The CPU time of one pass of each loop, in nanoseconds."""

    computing_ns: float
    moving_ns: float

    def blend(self, moving_share: float) -> float:
        """The reference for a workload that moves bytes for ``moving_share`` of its cost."""
        return (1 - moving_share) * self.computing_ns + moving_share * self.moving_ns


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    offset: int
    size: int

    def after(self, count: int) -> _Entry:
        return _Entry(self.key, self.offset + count, self.size)


class Reference:
    """The two loops. Owns a socket pair and an unnamed file in ``directory``; used by one thread."""

    def __init__(self, directory: Path | None) -> None:
        self._near, self._far = socket.socketpair()
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed by __exit__
        self._buffer = bytearray(len(_PIECE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._near.close()
        self._far.close()
        self._file.close()

    def time_once(self) -> ReferenceCost:
        """Times one pass of each loop."""
        begin = time.thread_time_ns()
        _compute()
        middle = time.thread_time_ns()
        self._move()
        return ReferenceCost(middle - begin, time.thread_time_ns() - middle)

    def _move(self) -> None:
        """Bytes over a socket, their checksum, a write to and a read from the page cache."""
        fd, buffer = self._file.fileno(), self._buffer
        view = memoryview(buffer)
        for number in range(_MOVES):
            self._near.sendall(_PIECE)
            received = 0
            while received < len(buffer):
                received += self._far.recv_into(view[received:])
            zlib.adler32(buffer)
            os.pwrite(fd, buffer, number * len(buffer))
            os.preadv(fd, [buffer], number * len(buffer))


def _compute() -> int:
    """Packing and unpacking, small objects, dictionaries, calls, strings: what Python does for a request."""
    table: dict[tuple[str, int], _Entry] = {}
    total = 0
    for step in range(_STEPS):
        frame = _FIELDS.pack(1, 2, step, 3) + b"client"
        key, version, number, length = _FIELDS.unpack_from(memoryview(frame))
        name = str(memoryview(frame)[_FIELDS.size :], "utf-8")
        place = (name, number % 16)
        known = table.get(place)
        table[place] = _Entry(name, step, length) if known is None else known.after(version)
        answers = [_FIELDS.pack(key, version, entry.offset, entry.size) for entry in list(table.values())[:4]]
        total += len(b"".join(answers))
    return total
