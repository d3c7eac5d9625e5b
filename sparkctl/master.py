"""Reads the master's view of the cluster from the JSON of its web UI."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkctl.tunnel import Tunnel

READ_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as the master reports it; memory in MiB."""

    host: str
    state: str
    cores: int
    cores_used: int
    memory_mb: int
    memory_used_mb: int


@dataclass(frozen=True, slots=True)
class MasterView:
    """The master's state (ALIVE, STANDBY, RECOVERING), its workers, and the number of
    running applications.
    """

    url: str
    status: str
    workers: tuple[WorkerView, ...]
    active_apps: int

    def alive_hosts(self) -> set[str]:
        """The hosts with an ALIVE worker. A worker that was restarted also leaves its dead entry in
        the list.
        """
        return {worker.host for worker in self.workers if worker.state == "ALIVE"}


def fetch_view(
    url: str, timeout_s: float = READ_TIMEOUT_S, tunnel: Tunnel | None = None
) -> MasterView | None:
    """The current view of the master at ``url``, or None when it does not answer in time. It is asked through
    ``tunnel`` if there is one.
    """
    # Bypasses the environment's proxy: the controller reaches its hosts directly.
    handlers = tunnel.handlers() if tunnel else []
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return view_from(json.load(answer))
    except (OSError, ValueError):
        return None


def view_from(body: Mapping[str, Any]) -> MasterView:
    """Parses the JSON of Spark 4.0's ``/json/``."""
    workers = tuple(
        WorkerView(w["host"], w["state"], w["cores"], w["coresused"], w["memory"], w["memoryused"])
        for w in body["workers"]
    )
    return MasterView(body["url"], body["status"], workers, len(body["activeapps"]))
