#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Removes the data directories of brokers that have left the cluster, never under a broker that runs.

Somebody may have started them since they were stopped. So their units must not run, and each directory's lock, which a
broker holds as long as it uses the directory, is held from before the first file is removed until the last one is.
"""

from __future__ import annotations

DOCUMENTATION = """
module: data_remove
short_description: Remove brokers' data directories, unless a broker uses them
description:
  - Removes the data directories of brokers that have left the cluster, never under a broker that runs.
  - Their units must not run, and each directory's lock, which a broker holds as long as it uses the directory, is held
    until the last file is removed. Nothing is removed if one of the directories is in use.
  - A directory that is a mounted disk stays, empty.
author: The Landline authors (!UNKNOWN)
options:
  dirs:
    description: The directories. They may be missing.
    type: list
    elements: path
    required: true
  units:
    description: The brokers' units.
    type: list
    elements: str
    required: true
"""
EXAMPLES = """
- name: Remove the data
  landline.cluster.data_remove:
    dirs: [/var/lib/landline/broker-4]
    units: [landline-broker@4.service]
"""
RETURN = """
removed:
  description: The directories that are gone, or are empty now.
  type: list
  elements: str
  returned: success
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.unit_state import show

# Kafka's name for it.
LOCK = ".lock"
FLOCK = struct.Struct("@hhqqi")  # Linux's struct flock: type, whence, start, length, pid
ENDED = ("inactive", "failed")


class InUseError(Exception):
    """A broker runs on the data; the message says which, and what to do."""


def lock(directory: Path, *, make: bool) -> int | None:
    """Returns the descriptor that holds the directory's lock, of both types: flock, and the record lock that Apache
    Kafka uses. With `make` a missing lock file is made, else the result is None. Raises `InUseError`.
    """
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        process = who_has(descriptor)
        os.close(descriptor)
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise
        raise InUseError(
            f"{directory} is in use: {process} has locked {directory / LOCK}, and no data were removed. It runs beside "
            "the unit that was stopped: end it, and run this again"
        ) from None
    return descriptor


def who_has(descriptor: int) -> str:
    """Returns in words which process holds the record lock of a file."""
    asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, *_unused, pid = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return f"process {pid}" if kind != fcntl.F_UNLCK and pid > 0 else "a process"


def see_that_they_have_ended(units: Iterable[str]) -> None:
    """Raises `InUseError` if a unit runs, and `subprocess.CalledProcessError`."""
    for unit in units:
        state = show(unit)["ActiveState"]
        if state not in ENDED:
            raise InUseError(
                f"{unit} is {state}, and no data were removed: somebody has started it since it was stopped. Run this "
                "again: what the broker has got since is moved away, and it is stopped once more"
            )


def remove_tree(directory: Path) -> None:
    """Removes the directory, its lock file last; one that is a mounted disk stays, empty. Raises `OSError`, also when
    something was written to it meanwhile.
    """
    with os.scandir(directory) as found:
        entries = [entry for entry in found if entry.name != LOCK]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
    (directory / LOCK).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise


def remove(dirs: Iterable[Path], units: Iterable[str], *, only_look: bool) -> list[str]:
    """Returns the directories that were removed, or would be. Raises `InUseError` before anything is removed. In a dry
    run nothing was stopped before, so the units may run, and have their directories.
    """
    if not only_look:
        see_that_they_have_ended(units)
    there = [each for each in dirs if each.is_symlink() or each.exists()]
    # A mounted disk that is empty stays as it is.
    there = [each for each in there if not each.is_mount() or any(each.iterdir())]
    with ExitStack() as locks:
        for each in [] if only_look else filter(Path.is_dir, there):
            descriptor = lock(each, make=not each.is_symlink())
            if descriptor is not None:
                locks.callback(os.close, descriptor)
        for each in [] if only_look else there:
            if each.is_dir() and not each.is_symlink():
                remove_tree(each)
            else:
                each.unlink()
    return [str(each) for each in there]


def main() -> None:
    module = AnsibleModule(
        {
            "dirs": {"type": "list", "elements": "path", "required": True},
            "units": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        removed = remove(
            map(Path, module.params["dirs"]), module.params["units"], only_look=module.check_mode
        )
    except InUseError as error:
        module.fail_json(msg=str(error))
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"systemctl show: {error.stderr.strip()}")
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Mend that, and run this again")
    module.exit_json(changed=bool(removed), removed=removed)


if __name__ == "__main__":
    main()
