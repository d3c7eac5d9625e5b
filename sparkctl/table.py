"""Shows a cluster's state, and its jobs, as coloured tables."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sparkctl.commands import Daemon, Role, workers_of
from sparkctl.inventory import SparkCluster, in_short
from sparkctl.launcher import ClusterState
from sparkctl.master import AppView, MasterView, WorkerView

_COLOURS = {
    **dict.fromkeys(("ALIVE", "running", "RUNNING", "FINISHED"), "green"),
    **dict.fromkeys(("unreachable", "DEAD", "FAILED", "KILLED"), "red"),
}
# The exit codes of spark-daemon.sh status, in words.
_DAEMON = {0: "running", 1: "died", 2: "stopped"}


def status_table(cluster: SparkCluster, state: ClusterState) -> Table:
    """A row for each daemon: the host's report, the leader's report, and the resources in use."""
    table = Table(title=f"Spark at {cluster.url}", title_justify="left")
    for name in ("host", "daemon", "process", "registered", "cores", "memory MiB"):
        table.add_column(name, justify="right" if name.startswith(("cores", "memory")) else "left")
    view = state.view
    master = "running" if state.master_runs else "stopped"
    leads = (
        view.status if view and (not cluster.standbys or _is_of(view, cluster.master.peer_address)) else "-"
    )
    table.add_row(cluster.master.name, "master", _coloured(master), _coloured(leads), "", "")
    for daemon, result in state.daemons.items():
        process = _DAEMON.get(result.exit_code, "unreachable")
        seen = _registration(daemon, state) if daemon.role is Role.WORKER else None
        known = seen.state if seen else "-"
        if daemon.role is Role.MASTER and view and _is_of(view, daemon.host.peer_address):
            known = view.status
        name = daemon.host.name if daemon.role is not Role.WORKER else daemon.name
        table.add_row(name, daemon.role.name.lower(), _coloured(process), _coloured(known), *_use(seen))
    return table


def is_well(cluster: SparkCluster, state: ClusterState) -> bool:
    """Whether a master leads, every worker of the inventory is ALIVE, and no other daemon is missing."""
    if state.view is None or state.view.status != "ALIVE":
        return False
    if not state.master_runs or any(
        daemon not in state.running for daemon in state.daemons if daemon.role is not Role.WORKER
    ):
        return False
    view = state.view
    return all(view.alive_on(daemon.host.peer_address) >= daemon.number for daemon in workers_of(cluster))


def jobs_table(view: MasterView) -> Table:
    """A row for each application: those that are not done, then the last ones that are."""
    table = Table(title=f"Jobs at {view.url}", title_justify="left")
    for name in ("id", "name", "state", "user", "cores", "MiB each", "submitted", "seconds"):
        right = name in {"cores", "MiB each", "seconds"}
        # The id is for fab spark.kill: it is never cut off.
        table.add_column(name, justify="right" if right else "left", min_width=23 if name == "id" else 0)
    for app in (*view.apps, *view.done):
        table.add_row(*_cells(app))
    return table


def _cells(app: AppView) -> tuple[str | Text, ...]:
    sizes = (str(app.cores), str(app.memory_mb))
    return (app.id, app.name, _coloured(app.state), app.user, *sizes, app.submitted, f"{app.seconds:.0f}")


def _is_of(view: MasterView, address: str) -> bool:
    """Whether a view is that of the master at an address."""
    return in_short(view.url.removeprefix("spark://").rpartition(":")[0]) == in_short(address)


def _registration(daemon: Daemon, state: ClusterState) -> WorkerView | None:
    """The master's latest entry for a worker. An ALIVE one takes precedence over dead entries."""
    host = in_short(daemon.host.peer_address)
    seen = [v for v in state.view.workers if v.host == host] if state.view else []
    alive = sorted((view for view in seen if view.state == "ALIVE"), key=lambda view: view.ui_port)
    if len(alive) >= daemon.number:
        return alive[daemon.number - 1]
    return next((view for view in reversed(seen) if view.state != "ALIVE"), None)


def _use(seen: WorkerView | None) -> tuple[str, str]:
    if seen is None:
        return "", ""
    return f"{seen.cores_used}/{seen.cores}", f"{seen.memory_used_mb}/{seen.memory_mb}"


def _coloured(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, "yellow"))
