"""Prints the cluster from each broker's /status, and commands to try next.

    python tools/cluster_status.py               exit code 0 when every broker runs and one is the controller, else 1
    python tools/cluster_status.py --svg FILE    also draws the output, for the README

With a lab's inventory it must run inside the lab's network, as `make status` does. `http_access` has the environment
variables for HTTP ports with TLS or a token.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.http_access import TOKEN_ENV
from tools.inventory import Broker, Inventory

TIMEOUT_S = 5.0
UNAUTHORIZED = 401
RUNNING = {"RunningAsBroker", "RunningAsController"}

Status = dict[str, Any]


def ask(broker: Broker) -> Status:
    """Returns the broker's /status. If there is no answer, returns a status that holds only the reason."""
    try:
        code, body = broker.get("/status", TIMEOUT_S)
        if code == UNAUTHORIZED:
            return {"state": "no answer", "error": f"it needs a token: set {TOKEN_ENV}"}
        status: Any = json.loads(body)
        if not isinstance(status, dict) or "state" not in status:
            raise ValueError("what answers there is no Landline broker")
        found: Status = status
        return found
    except (OSError, ValueError) as error:
        return {"state": "no answer", "error": str(error)}


def listeners_of(status: Status) -> str:
    """Returns the listeners as one table cell."""
    found = status.get("listeners", [])
    return "\n".join(map(str, found))


def is_well(statuses: list[Status]) -> bool:
    """Whether every broker runs and exactly one of them is the controller."""
    return (
        all(status["state"] in RUNNING for status in statuses)
        and sum(bool(status.get("is_controller")) for status in statuses) == 1
    )


def row(broker: Broker, status: Status) -> list[Text | str]:
    """Returns the broker's row of the table."""
    running = status["state"] in RUNNING
    under = status.get("under_replicated_partitions", 0)
    lag = (
        Text(f"{under} under-replicated", "yellow")
        if under
        else Text("in sync", "green" if running else "dim")
    )
    started = f"{status['startup_ms']:,.0f} ms" if running else ""
    partitions = f"{status['leader_count']} led of {status['partition_count']}" if running else ""
    return [
        broker.host,
        str(broker.broker_id),
        Text(
            status["state"] if running else f"{status['state']}: {status.get('error', '')}",
            "green" if running else "red",
        ),
        Text("controller", "bold magenta") if status.get("is_controller") else "",
        listeners_of(status) or broker.bootstrap,
        f"{broker.http_port}",
        partitions,
        lag if running else "",
        Text(started, "cyan"),
    ]


def table(brokers: list[Broker], statuses: list[Status]) -> Table:
    """Returns the table of all brokers."""
    drawn = Table(header_style="bold", border_style="dim")
    for column in ("host", "broker", "state", "", "listeners", "http", "partitions", "replicas"):
        drawn.add_column(column)
    drawn.add_column("start-up", justify="right")
    last = ""
    for broker, status in zip(brokers, statuses, strict=True):
        if last and broker.host != last:
            drawn.add_section()
        last = broker.host
        drawn.add_row(*row(broker, status))
    return drawn


def next_commands(inventory: Inventory, brokers: list[Broker]) -> list[tuple[str, str]]:
    """Returns three commands to try, each with a description."""
    bootstrap = brokers[0].bootstrap
    lab = os.environ.get("LANDLINE_LAB")
    if brokers[0].tunnel:  # no client on this machine reaches it
        return [
            (
                "make smoke INVENTORY=" + shlex.quote(os.environ.get("ANSIBLE_INVENTORY", "")),
                "check everything",
            ),
            (
                "make deploy INVENTORY=" + shlex.quote(os.environ.get("ANSIBLE_INVENTORY", "")),
                "roll a change out",
            ),
        ]
    if not lab or "lab.py" not in os.environ.get("ANSIBLE_INVENTORY", "inventory/lab.py"):
        return [
            (f".venv/bin/topics list -b {bootstrap}", "the cluster as a client sees it"),
            (
                "make deploy INVENTORY=" + shlex.quote(os.environ.get("ANSIBLE_INVENTORY", "")),
                "roll a change out",
            ),
        ]
    enter = f".venv/bin/lab enter {lab} --"
    last = (
        (f"{enter} fab spark.start", "Spark on the same hosts, from its master")
        if inventory.hosts("spark_master")
        else (f".venv/bin/lab exec {lab} {brokers[0].host} -- systemctl status", "what runs on a host")
    )
    return [
        (f"{enter} topics list", "the cluster as a client sees it"),
        (f"{enter} topics read landline.journal --last 5", "the hosts' newest log lines"),
        last,
    ]


def hints(commands: list[tuple[str, str]]) -> Panel:
    """Returns the panel with the commands."""
    lines = [Text.assemble((command, "bold green"), ("   # " + what, "dim")) for command, what in commands]
    return Panel(Group(*lines), title="try next", title_align="left", border_style="dim", expand=False)


def main() -> int:
    inventory = Inventory.read()
    brokers = inventory.brokers()
    if not brokers:
        raise SystemExit("cluster_status: the inventory's group brokers is empty")
    with ThreadPoolExecutor(max_workers=16) as pool:
        statuses = list(pool.map(ask, brokers))
    picture = sys.argv[2] if sys.argv[1:2] == ["--svg"] else None
    console = Console(highlight=False, soft_wrap=True, record=picture is not None)
    if not console.is_terminal or picture:
        console.width = 132 if picture else 160
    first = next((status for status in statuses if status.get("cluster_id")), {})
    console.print()
    console.print(
        f"[bold]cluster {first.get('cluster_id', 'unknown')}[/], Landline {first.get('version', '?')}"
    )
    console.print(table(brokers, statuses))
    console.print(hints(next_commands(inventory, brokers)))
    if picture:
        console.save_svg(picture, title="make cluster-up")
    return 0 if is_well(statuses) else 1


if __name__ == "__main__":
    sys.exit(main())
