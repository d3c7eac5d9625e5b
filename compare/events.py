"""Builds lifecycle events (docs/lifecycle.md) from what the comparison itself observed or read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compare.recorded import SCHEMA_VERSION

Event = dict[str, Any]


def now_us() -> int:
    """The current time in microseconds since 1970."""
    return time.time_ns() // 1000


def monotonic_us(wall_us: int) -> int:
    """The same time on CLOCK_MONOTONIC; all hosts of a lab share the controller's kernel, and so
    its clocks.
    """
    return wall_us - (time.time_ns() - time.monotonic_ns()) // 1000


def own_boot_id() -> str:
    """The controller's boot id."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(slots=True)
class Story:
    """The events of one launch or of one process's start, in the order in which they are added."""

    run_id: str
    start_id: str
    host: str
    role: str
    instance: str
    model: str
    boot_id: str
    events: list[Event] = field(default_factory=list)

    def add(
        self,
        step: str,
        start_us: int,
        end_us: int,
        *,
        detail: str = "",
        sent: int = -1,
        connections: int = -1,
        **more: Any,
    ) -> None:
        """Adds one step; a step with a ``detail`` failed. ``sent``: bytes, both ways; -1, as for connections:
        not measured.
        """
        seq = len(self.events) + 1
        end_us = max(start_us, end_us)
        self.events.append(
            {
                "schema": SCHEMA_VERSION,
                "id": f"{self.start_id}:{seq}",
                "run_id": self.run_id,
                "start_id": self.start_id,
                "seq": seq,
                "host": self.host,
                "role": self.role,
                "instance": self.instance,
                "model": self.model,
                "kind": "start",
                "step": step,
                "start_us": start_us,
                "end_us": end_us,
                "start_mono_us": monotonic_us(start_us),
                "end_mono_us": monotonic_us(end_us),
                "boot_id": self.boot_id,
                "outcome": "failed" if detail else "ok",
                "detail": detail,
                "bytes": sent,
                "connections": connections,
                **more,
            }
        )


class EventsFile:
    """The raw record: one JSON object per line, each event once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = {event["id"] for event in self.read()}

    def append(self, events: Iterable[Event]) -> int:
        """Adds the events that are not there yet; returns their number. Raises OSError."""
        fresh = list({event["id"]: event for event in events if event["id"] not in self._seen}.values())
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in fresh)
        self._seen |= {event["id"] for event in fresh}
        return len(fresh)

    def read(self) -> list[Event]:
        """All events; none when there is no file."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
