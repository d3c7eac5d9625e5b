"""Lifecycle events: every step of a broker's start and stop, in the format of docs/lifecycle.schema.json.

Off unless ``landline.lifecycle.enable`` is set. A process's events are stored in a
file in the first log directory. They are published from there once the broker is
up (:mod:`broker.server.lifecycle.lifecycle_publisher`).
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from broker.server.lifecycle.startup_steps import StepRecord
from broker.utils.own_connections import ConnectionTotals, OwnConnections
from broker.utils.process_identity import ProcessIdentity

_log = structlog.get_logger(__name__)
SCHEMA_VERSION = 1
FILE_NAME = "landline-lifecycle.jsonl"
RUN_VARIABLE = "LANDLINE_RUN_ID"
STARTED_BY_VARIABLE = "LANDLINE_STARTED_BY"
_MAX_FILE_BYTES = 4 << 20


class LifecycleFile:
    """The file of events: one JSON object per line, oldest first. When it exceeds 4 MiB, only the newer half
    is kept. A second file holds the id of the last published event.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._mark = self.path.with_suffix(".published")

    def append(self, events: list[dict[str, Any]]) -> None:
        """Appends events. Raises OSError. Creates the directory: a first start may fail before its log
        directories exist.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size > _MAX_FILE_BYTES:
            lines = self.path.read_bytes().splitlines(keepends=True)
            _replace(self.path, b"".join(lines[len(lines) // 2 :]))
        text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def unpublished(self) -> list[dict[str, Any]]:
        """The unpublished events, oldest first; all of them if the last published one is unknown. A line cut
        off by a power loss is skipped. Raises OSError.
        """
        if not self.path.exists():
            return []
        events = [event for line in self.path.read_bytes().splitlines() if (event := _parsed(line))]
        last = self._mark.read_text(encoding="ascii") if self._mark.exists() else ""
        after = next((index + 1 for index, event in enumerate(events) if event["id"] == last), 0)
        return events[after:]

    def mark_published(self, last_id: str) -> None:
        """Records the last published event. Raises OSError."""
        _replace(self._mark, last_id.encode("ascii"))


class Lifecycle:
    """Creates the events of one process's steps. ``broker_id`` is called when they are stored: a generated id
    is known late.
    """

    def __init__(
        self, file: LifecycleFile, broker_id: Callable[[], int], environment: Mapping[str, str] = os.environ
    ) -> None:
        self.file = file
        self._broker_id = broker_id
        under_systemd = "INVOCATION_ID" in environment
        self._common = {
            "schema": SCHEMA_VERSION,
            "run_id": environment.get(RUN_VARIABLE, ""),
            "start_id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "role": "broker",
            "model": environment.get(STARTED_BY_VARIABLE) or ("independent" if under_systemd else "unknown"),
            "boot_id": ProcessIdentity.current().boot_id,
        }
        self._connections = OwnConnections()
        self._seen = ConnectionTotals(0, 0)
        self._pending: list[dict[str, Any]] = []
        self._count = 0
        self._began_ns = _process_began_ns()
        self.observe(StepRecord("start", "Process", self._began_ns, time.monotonic_ns()))

    def observe(self, record: StepRecord) -> None:
        """Adds one step's event, with the traffic since the previous one."""
        traffic = self._connections.look()
        self._add(record, traffic.bytes - self._seen.bytes, traffic.connections - self._seen.connections)
        self._seen = traffic

    def end(self, kind: str, began_ns: int | None = None, outcome: str = "ok", detail: str = "") -> None:
        """Adds the event of the whole start or stop, with all its traffic, and stores the events. Never
        raises: the broker must not fail because of its events.
        """
        step = {"start": "Ready", "stop": "Stopped"}[kind]
        began_ns = self._began_ns if began_ns is None else began_ns
        self._add(StepRecord(kind, step, began_ns, time.monotonic_ns(), outcome, detail), *self._seen)
        events, self._pending = self._pending, []
        try:
            self.file.append([{**event, "instance": str(self._broker_id())} for event in events])
        except OSError as error:
            _log.warning(
                "lifecycle_events_not_kept",
                path=str(self.file.path),
                reason=str(error),
                config="landline.lifecycle.enable",
                action="the broker goes on; these events are lost",
            )

    def _add(self, record: StepRecord, sent: int, connections: int) -> None:
        self._count += 1
        wall_minus_mono_ns = time.time_ns() - time.monotonic_ns()
        self._pending.append(
            {
                **self._common,
                "id": f"{self._common['start_id']}:{self._count}",
                "seq": self._count,
                "kind": record.kind,
                "step": record.step,
                "start_us": (record.began_ns + wall_minus_mono_ns) // 1000,
                "end_us": (record.ended_ns + wall_minus_mono_ns) // 1000,
                "start_mono_us": record.began_ns // 1000,
                "end_mono_us": record.ended_ns // 1000,
                "outcome": record.outcome,
                "detail": record.detail,
                "bytes": sent,
                "connections": connections,
            }
        )


def _process_began_ns() -> int:
    """When the kernel started this process, on CLOCK_MONOTONIC, with a resolution of a hundredth
    of a second.
    """
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ProcessIdentity.current().started_ticks / os.sysconf(
        "SC_CLK_TCK"
    )
    return time.monotonic_ns() - int(max(age_s, 0) * 1e9)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "id" in event else None


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
