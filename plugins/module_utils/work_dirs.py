# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Directories for what a run has for a while and nobody else may read: a metadata tree, a support archive.

All are in one directory that only its owner can list or change. A run removes its own at its end. One that ends before,
as by ^C, leaves it to later ones: whoever makes a directory removes those there that are older than a run takes. A
younger one may be of a run that goes on beside this one.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import stat
import tempfile
import time
from pathlib import Path

LEFT_S = 3600.0
# The brokers' user has to reach its own directory in it, whose name it is told.
MODE = 0o711
# The last run in it removes it.
_TRIES = 5


class WorkDirError(Exception):
    """There can be no such directory; the message says why, and what to do."""


def made(parent: Path, owner: str = "", group: str = "", left_s: float = LEFT_S) -> Path:
    """Makes a directory below `parent` that only the owner, by default who runs this, can read; removes what ended runs
    have left there. Raises `WorkDirError`, `OSError`.
    """
    uid, gid = _ids(owner, group)
    for _unused in range(_TRIES):
        _own(parent)
        _clean(parent, time.time() - left_s)
        with contextlib.suppress(FileNotFoundError):
            path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))  # 0700
            os.chown(path, uid, gid, follow_symlinks=False)
            return path
    raise WorkDirError(f"{parent} is removed again and again: find out by whom")


def _ids(owner: str, group: str) -> tuple[int, int]:
    try:
        uid = int(owner) if owner.isdecimal() else pwd.getpwnam(owner).pw_uid if owner else -1
        gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid if group else -1
    except KeyError as error:
        raise WorkDirError(f"{owner}:{group}: {error.args[0]}: there can be no directory for it") from error
    return uid, gid


def removed(path: Path) -> bool:
    """Removes such a directory, and the one above it if it was the last one there. Returns whether it was there."""
    was_there = os.path.lexists(path)
    _remove(path)
    with contextlib.suppress(OSError):  # another run has one there
        path.parent.rmdir()
    return was_there


def _own(parent: Path) -> None:
    """Makes the directory above, or sees that it is nobody else's: what is a link, or somebody else's, was put there by
    who wants to read what comes. Raises `WorkDirError`.
    """
    parent.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        parent.mkdir(MODE)
    try:
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except OSError as error:
        raise WorkDirError(
            f"{parent} is no directory ({error.strerror}): find out who made it, and remove it"
        ) from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise WorkDirError(
                f"{parent} is of the user {found.st_uid}, who could read what is kept there, and not of "
                f"{os.geteuid()}, who runs this: find out who made it, and remove it"
            )
        if stat.S_IMODE(found.st_mode) != MODE:
            os.fchmod(descriptor, MODE)
    finally:
        os.close(descriptor)


def _clean(parent: Path, before: float) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(parent)):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    _remove(Path(entry.path))


def _remove(path: Path) -> None:
    """Links are removed, and not followed."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)
