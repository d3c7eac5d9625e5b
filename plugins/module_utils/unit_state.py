# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reads how a systemd unit runs, and with which fingerprint. Shared by the modules, which make the decisions.

A unit's start puts LANDLINE_FINGERPRINT into its environment, so the process itself shows what it was started
with. An interrupted roll is resumed by it, because files on disk say nothing about what is running.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = b"LANDLINE_FINGERPRINT="
# Longer than a broker may take to stop (broker_stop_timeout_s).
SETTLED_WITHIN_S = 150.0
PAUSE_S = 0.2


def unit_state(active_state: str, running_fingerprint: str | None, wanted: str) -> str:
    """Returns stopped, current (runs with the wanted fingerprint) or changed (runs with another one)."""
    if active_state not in {"active", "activating", "reloading"} or running_fingerprint is None:
        return "stopped"
    return "current" if running_fingerprint == wanted else "changed"


def fingerprint_in(environ: bytes) -> str:
    """Returns the fingerprint in the bytes of /proc/PID/environ; empty when there is none."""
    for entry in environ.split(b"\0"):
        if entry.startswith(VARIABLE):
            return entry[len(VARIABLE) :].decode()
    return ""


def fingerprint_of(pid: int) -> str | None:
    """Returns the fingerprint of a process; None when there is no such process (any more)."""
    if pid <= 0:
        return None
    try:
        return fingerprint_in(Path(f"/proc/{pid}/environ").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None


def show(unit: str) -> dict[str, str]:
    """Returns the unit's state in systemd: ActiveState, MainPID, and Job, the number of its running job,
    or 0.
    """
    argv = ["systemctl", "show", "--property=ActiveState,MainPID,Job", unit]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    told = dict(line.partition("=")[::2] for line in lines)
    return {"Job": "0", **{key: value or "0" for key, value in told.items()}}


def is_between(shown: Mapping[str, str]) -> bool:
    """Whether the unit is being stopped or restarted right now: what it will run with cannot be seen yet."""
    if shown["ActiveState"] == "deactivating":
        return True
    return (
        shown["ActiveState"] in {"inactive", "activating"} and shown["MainPID"] == "0" and shown["Job"] != "0"
    )


def state_of(
    unit: str,
    wanted: str,
    show: Callable[[str], Mapping[str, str]] = show,
    within_s: float = SETTLED_WITHIN_S,
) -> str:
    """Returns the unit's state from systemd; raises `subprocess.CalledProcessError` when systemd does
    not answer.

    Waits for a restart that is in progress. Otherwise the unit would count as stopped. It would get new files
    and a start that does nothing, and would keep running with the old files.
    """
    shown, deadline = show(unit), time.monotonic() + within_s
    while is_between(shown) and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
        shown = show(unit)
    return unit_state(shown["ActiveState"], fingerprint_of(int(shown["MainPID"])), wanted)
