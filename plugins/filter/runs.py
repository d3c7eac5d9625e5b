# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Which run of a playbook this is, as it notes itself on hosts, and whether a run that noted itself goes on.

A run is a process of the machine that runs Ansible. Whether it lives is seen by looks into /proc, and only from where
it is: on the same boot of the same machine, and in the same namespace of processes. A process has its number and when
it began, because numbers are used again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GOES_ON, ENDED, ELSEWHERE = "goes on", "ended", "elsewhere"
_PROC = Path("/proc")
_STATE, _PARENT, _STARTED = 0, 1, 19  # of the fields after the program's name in /proc/PID/stat
_DEAD = ("Z", "X")


def fields_of(pid: int, proc: Path = _PROC) -> list[str]:
    """Returns what /proc/PID/stat has after the program's name, which is in brackets and may have any character;
    nothing for a process that is gone.
    """
    try:
        return (
            (proc / str(pid) / "stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return []


def is_ansible(pid: int, proc: Path = _PROC) -> bool:
    """Whether the process is a program of Ansible, started by its name or by Python."""
    try:
        argv = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(each.rpartition(b"/")[2].startswith(b"ansible") for each in argv[:2])


def main_process(pid: int, proc: Path = _PROC) -> int:
    """Returns the process of Ansible that the process `pid` was forked from, over others of it; else its parent."""
    found = pid
    while (fields := fields_of(found, proc)) and is_ansible(parent := int(fields[_PARENT]), proc):
        found = parent
    if found == pid and not is_ansible(pid, proc) and fields:
        return int(fields[_PARENT])
    return found


def place(proc: Path = _PROC) -> dict[str, str]:
    """Returns where processes have the numbers that they have here: empty texts where that is not known."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        pids = str((proc / "self/ns/pid").readlink())
    except OSError:
        boot = pids = ""
    return {"boot": boot, "pids": pids}


def run_here(machine: str, since: str) -> dict[str, Any]:
    """Returns what this run notes of itself; `since` is when it began, as text."""
    pid = main_process(os.getpid())
    fields = fields_of(pid)
    started = int(fields[_STARTED]) if fields else -1
    return {"machine": machine, "since": since, "pid": pid, "started": started, **place()}


def run_state(run: Mapping[str, Any], proc: Path = _PROC) -> str:
    """Returns whether a run that noted itself goes on or has ended, or that this is not seen from here."""
    here = place(proc)
    if not here["boot"] or any(run.get(key) != value for key, value in here.items()):
        return ELSEWHERE
    try:
        pid, started = int(run["pid"]), int(run["started"])
    except (KeyError, TypeError, ValueError):
        return ELSEWHERE
    fields = fields_of(pid, proc)
    lives = bool(fields) and int(fields[_STARTED]) == started and fields[_STATE] not in _DEAD
    return GOES_ON if lives else ENDED


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {"run_here": run_here}
