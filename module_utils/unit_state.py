"""How a systemd unit runs, and with what. Shared by the modules; leaves every decision to them.

A unit's start puts LANDLINE_FINGERPRINT into its environment, so the process itself says what it was started
with. An interrupted roll is resumed by that: files on disk say nothing about what is running.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

VARIABLE = b"LANDLINE_FINGERPRINT="


def unit_state(active_state: str, running_fingerprint: str | None, wanted: str) -> str:
    """Returns stopped, current (runs with what is wanted) or changed (runs with something else)."""
    if active_state not in {"active", "activating", "reloading"} or running_fingerprint is None:
        return "stopped"
    return "current" if running_fingerprint == wanted else "changed"


def fingerprint_in(environ: bytes) -> str:
    """Returns the fingerprint in the bytes of /proc/PID/environ, empty when there is none."""
    for entry in environ.split(b"\0"):
        if entry.startswith(VARIABLE):
            return entry[len(VARIABLE) :].decode()
    return ""


def fingerprint_of(pid: int) -> str | None:
    """Returns the fingerprint of a process, None when there is no such process (any more)."""
    if pid <= 0:
        return None
    try:
        return fingerprint_in(Path(f"/proc/{pid}/environ").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None


def state_of(unit: str, wanted: str) -> str:
    """Asks systemd for the unit's state; raises `subprocess.CalledProcessError` when it does not answer."""
    argv = ["systemctl", "show", "--property=ActiveState,MainPID", unit]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    shown = dict(line.partition("=")[::2] for line in lines)
    return unit_state(shown["ActiveState"], fingerprint_of(int(shown["MainPID"])), wanted)
