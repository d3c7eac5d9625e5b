"""What the master says of its cluster, read from its web UI's JSON."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

READ_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker in the master's eyes; memory in MiB."""

    host: str
    state: str
    cores: int
    cores_used: int
    memory_mb: int
    memory_used_mb: int


@dataclass(frozen=True, slots=True)
class MasterView:
    """The master's state (ALIVE, STANDBY, RECOVERING), its workers, and how many applications run."""

    url: str
    status: str
    workers: tuple[WorkerView, ...]
    active_apps: int

    def alive_hosts(self) -> set[str]:
        """Hosts with a worker that is ALIVE; a worker that came back leaves its dead self in the list."""
        return {worker.host for worker in self.workers if worker.state == "ALIVE"}


def fetch_view(url: str, timeout_s: float = READ_TIMEOUT_S) -> MasterView | None:
    """What the master at ``url`` says now, or None when nobody answers there in time."""
    # No proxy of the environment stands between the controller and its hosts.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return view_from(json.load(answer))
    except (OSError, ValueError):
        return None


def view_from(body: Mapping[str, Any]) -> MasterView:
    """The view in the JSON of Spark 4.0's ``/json/``."""
    workers = tuple(
        WorkerView(w["host"], w["state"], w["cores"], w["coresused"], w["memory"], w["memoryused"])
        for w in body["workers"]
    )
    return MasterView(body["url"], body["status"], workers, len(body["activeapps"]))
