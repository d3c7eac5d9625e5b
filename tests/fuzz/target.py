"""What a target of the fuzzers is: something that reads what others sent, and what it may answer with.

A target that raises anything but its refusals, ends the process, or takes more memory or time than it is allowed
has a defect. Files are read from memory, so that nothing here waits for a disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` reads one input and may raise ``refusals``; ``seeds`` are inputs that it takes. ``most_lines`` is how
    many lines an input may put into the log; None: as many as it says.
    """

    name: str
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]
    most_lines: int | None = None

    def try_(self, data: bytes) -> None:
        """Raises what the decoder should not have raised."""
        with contextlib.suppress(*self.refusals):
            self.run(data)


class Script:
    """An input read as what a peer does, one step after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether there is more."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte; 0 behind the end."""
        return next(iter(self.take(1)), 0)

    def take(self, count: int) -> bytes:
        """The next bytes, as many as there are."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found


@contextlib.contextmanager
def file_of(data: bytes, name: str = "leader-epoch-checkpoint") -> Iterator[Path]:
    """A file in memory, alone in its directory."""
    directory = Path("/dev/shm") / f"landline-fuzz-{os.getpid()}"
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink()
        directory.rmdir()
