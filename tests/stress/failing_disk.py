"""Disks that fail: from a moment on, every operation on files below a directory is an error of input or output."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CALLS = (
    "open", "pread", "pwrite", "fsync", "fdatasync", "ftruncate", "truncate", "rename", "replace", "unlink", "mkdir",
)  # fmt: skip


class FailingDisk:
    """What has failed stays so until :func:`failing_disk` ends. Nothing that was written is taken back."""

    def __init__(self) -> None:
        self._failed: tuple[str, ...] = ()

    def fail(self, directory: Path) -> None:
        self._failed = (*self._failed, f"{directory}/")

    def check(self, file: Any) -> None:
        """Raises OSError for a path, or a descriptor of a file, on a disk that has failed."""
        if not self._failed:
            return
        try:
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.fspath(file)  # noqa: PTH115
        except OSError:
            return  # it is the call's to say what is wrong with it
        if isinstance(path, str) and f"{path}/".startswith(self._failed):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


@contextmanager
def failing_disk() -> Iterator[FailingDisk]:
    """Has the calls of ``os`` that the log uses heed it."""
    disk = FailingDisk()
    real = {name: getattr(os, name) for name in _CALLS}

    def heeding(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(file: Any, *arguments: Any, **options: Any) -> Any:
            disk.check(file)
            return call(file, *arguments, **options)

        return called

    for name, call in real.items():
        setattr(os, name, heeding(call))
    try:
        yield disk
    finally:
        for name, call in real.items():
            setattr(os, name, call)
