"""Reads the masters' view of the cluster from the JSON of their web UIs, and ends applications there."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkctl.errors import Error
from sparkctl.inventory import in_short
from sparkctl.tunnel import Tunnel

READ_TIMEOUT_S = 5
END_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as the master reports it, its host ``in_short``; memory in MiB."""

    host: str
    state: str
    cores: int
    cores_used: int
    memory_mb: int
    memory_used_mb: int
    # The port of its web UI, which tells the workers of a host apart.
    ui_port: int = 0


@dataclass(frozen=True, slots=True)
class AppView:
    """An application as the master reports it; ``seconds`` is how long it ran so far."""

    id: str
    name: str
    state: str
    user: str
    cores: int
    memory_mb: int
    submitted: str
    seconds: float


@dataclass(frozen=True, slots=True)
class MasterView:
    """A master's state (ALIVE, STANDBY, RECOVERING), its workers, and the applications: those that
    are not done, and the last ones that are.
    """

    url: str
    status: str
    workers: tuple[WorkerView, ...]
    active_apps: int
    apps: tuple[AppView, ...] = ()
    done: tuple[AppView, ...] = ()
    ui_url: str = ""

    def alive_hosts(self) -> set[str]:
        """The hosts with an ALIVE worker. A worker that was restarted also leaves its dead entry in
        the list.
        """
        return {worker.host for worker in self.workers if worker.state == "ALIVE"}

    def alive_on(self, host: str) -> int:
        """The number of a host's ALIVE workers."""
        return sum(worker.host == in_short(host) and worker.state == "ALIVE" for worker in self.workers)


def leader_view(
    urls: Iterable[str], timeout_s: float = READ_TIMEOUT_S, tunnel: Tunnel | None = None
) -> MasterView | None:
    """The view of the master that leads. If none does, that of any master; None if no master answers."""
    views = [view for url in urls if (view := fetch_view(url, timeout_s, tunnel)) is not None]
    rank = {"ALIVE": 0, "STANDBY": 2}
    return min(views, key=lambda view: rank.get(view.status, 1), default=None)


def fetch_view(
    url: str, timeout_s: float = READ_TIMEOUT_S, tunnel: Tunnel | None = None
) -> MasterView | None:
    """The current view of the master whose web UI is ``url``, or None when it does not answer in time. It is asked
    through ``tunnel`` if there is one.
    """
    try:
        with _opener(tunnel).open(f"{url}/json/", timeout=timeout_s) as answer:
            return view_from(json.load(answer), url)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return None  # nobody, or another program


def end(view: MasterView, app_id: str, fetch: Callable[[], MasterView], tunnel: Tunnel | None = None) -> None:
    """Has the master end an application, as its page's link does, and waits until it has. Raises ``Error``."""
    form = urllib.parse.urlencode({"id": app_id, "terminate": "true"}).encode()
    try:
        with _opener(tunnel).open(f"{view.ui_url}/app/kill/", form, timeout=READ_TIMEOUT_S):
            pass
    except (OSError, http.client.HTTPException) as error:
        raise Error(f"the master's page at {view.ui_url} does not end {app_id}: {error}") from error
    deadline = time.monotonic() + END_TIMEOUT_S
    while any(app.id == app_id for app in fetch().apps):
        if time.monotonic() >= deadline:
            raise Error(f"{app_id} still runs: is spark.ui.killEnabled false at {view.ui_url}?")
        time.sleep(0.2)


def view_from(body: Mapping[str, Any], ui_url: str = "") -> MasterView:
    """Parses the JSON of Spark 4.0's ``/json/``."""
    workers = tuple(
        WorkerView(
            *(in_short(w["host"]), w["state"], w["cores"], w["coresused"], w["memory"], w["memoryused"]),
            urllib.parse.urlsplit(w.get("webuiaddress", "")).port or 0,
        )
        for w in body["workers"]
    )
    apps, done = (tuple(map(_app, body.get(key, ()))) for key in ("activeapps", "completedapps"))
    return MasterView(body["url"], body["status"], workers, len(apps), apps, done, ui_url)


def _app(body: Mapping[str, Any]) -> AppView:
    return AppView(
        *(body["id"], body["name"], body["state"], body["user"], body["cores"]),
        *(body["memoryperexecutor"], body["submitdate"], body["duration"] / 1000),
    )


def _opener(tunnel: Tunnel | None) -> urllib.request.OpenerDirector:
    # Bypasses the environment's proxy: the controller reaches its hosts directly.
    handlers = tunnel.handlers() if tunnel else []
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)
