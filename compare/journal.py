"""Extracts processes and their start times from journal entries (``journalctl -o json``). Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from compare.steps import Line, ProcessLog

Entry = Mapping[str, Any]
# systemd's message id for "begins to start a unit".
UNIT_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"


def matches(unit: str, identifier: str = "") -> list[str]:
    """The journalctl arguments that select a unit's lines, systemd's lines about it, and those of
    an identifier.
    """
    wanted = [f"_SYSTEMD_UNIT={unit}", f"UNIT={unit}"]
    if identifier:
        wanted.append(f"SYSLOG_IDENTIFIER={identifier}")
    return " + ".join(wanted).split()


def entries(text: str) -> list[Entry]:
    """Parses one entry per line; skips invalid lines."""
    found: list[Entry] = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("MESSAGE"), str):
            found.append(entry)
    return found


def starts_us(known: Iterable[Entry], unit: str) -> list[int]:
    """The times at which systemd began to start the unit."""
    return [_at_us(e) for e in known if e.get("UNIT") == unit and e.get("MESSAGE_ID") == UNIT_STARTING]


def processes(known: Iterable[Entry]) -> list[ProcessLog]:
    """The lines of each process except systemd, by boot and process id, in the order of their first lines."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for entry in known:
        if entry.get("_PID") != "1" and "UNIT" not in entry:
            key = (str(entry.get("_BOOT_ID", "")), str(entry.get("_PID", "")))
            groups.setdefault(key, []).append(Line(_at_us(entry), entry["MESSAGE"]))
    return [
        ProcessLog(tuple(lines), str(uuid.UUID(boot_id)) if boot_id else "")
        for (boot_id, _), lines in groups.items()
    ]


def _at_us(entry: Entry) -> int:
    return int(entry["__REALTIME_TIMESTAMP"])
