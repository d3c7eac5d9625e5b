"""Shows a cluster's state as a coloured table."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sparkctl.inventory import Host, SparkCluster
from sparkctl.launcher import ClusterState
from sparkctl.master import WorkerView

_COLOURS = {"ALIVE": "green", "running": "green", "unreachable": "red", "DEAD": "red"}
# The exit codes of spark-daemon.sh status, in words.
_DAEMON = {0: "running", 1: "died", 2: "stopped"}


def status_table(cluster: SparkCluster, state: ClusterState) -> Table:
    """A row for the master and for each worker: the host's report, the master's report, and the resources
    in use.
    """
    table = Table(title=f"Spark at {cluster.url}", title_justify="left")
    for name in ("host", "daemon", "process", "registered", "cores", "memory MiB"):
        table.add_column(name, justify="right" if name.startswith(("cores", "memory")) else "left")
    view = state.view
    master = "running" if state.master_runs else "stopped"
    table.add_row(
        cluster.master.name, "master", _coloured(master), _coloured(view.status if view else "-"), "", ""
    )
    for worker in cluster.workers:
        process = _DAEMON.get(state.workers[worker.name].exit_code, "unreachable")
        seen = _registration(worker, state)
        table.add_row(
            worker.name, "worker", _coloured(process), _coloured(seen.state if seen else "-"), *_use(seen)
        )
    return table


def is_well(cluster: SparkCluster, state: ClusterState) -> bool:
    """Whether the master and every worker of the inventory are ALIVE."""
    if state.view is None or state.view.status != "ALIVE":
        return False
    return {worker.peer_address for worker in cluster.workers} <= state.view.alive_hosts()


def _registration(worker: Host, state: ClusterState) -> WorkerView | None:
    """The master's latest entry for a host. An ALIVE worker takes precedence over its dead entries."""
    seen = [view for view in state.view.workers if view.host == worker.peer_address] if state.view else []
    return next((view for view in seen if view.state == "ALIVE"), seen[-1] if seen else None)


def _use(seen: WorkerView | None) -> tuple[str, str]:
    if seen is None:
        return "", ""
    return f"{seen.cores_used}/{seen.cores}", f"{seen.memory_used_mb}/{seen.memory_mb}"


def _coloured(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, "yellow"))
