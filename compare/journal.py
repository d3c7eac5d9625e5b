"""Reads processes and their beginnings out of a journal's entries (``journalctl -o json``). Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from compare.steps import Line, ProcessLog

Entry = Mapping[str, Any]
# systemd's own number of the message that it begins to start a unit.
UNIT_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"


def matches(unit: str, identifier: str = "") -> list[str]:
    """Journalctl's arguments for a unit's lines, systemd's about it, and those of an identifier."""
    wanted = [f"_SYSTEMD_UNIT={unit}", f"UNIT={unit}"]
    if identifier:
        wanted.append(f"SYSLOG_IDENTIFIER={identifier}")
    return " + ".join(wanted).split()


def entries(text: str) -> list[Entry]:
    """One entry a line; a line that is none is left out."""
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
    """When systemd began to start the unit, each time."""
    return [_at_us(e) for e in known if e.get("UNIT") == unit and e.get("MESSAGE_ID") == UNIT_STARTING]


def processes(known: Iterable[Entry]) -> list[ProcessLog]:
    """What each process but systemd itself wrote, by boot and process id, in the order of their first lines."""
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
