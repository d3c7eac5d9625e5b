"""Reads the hosts of the Spark cluster from the Ansible inventory, so deployment and launcher use the
same hosts.

Groups: ``spark_master`` (one host) and ``spark_workers``. Host variables: Ansible's connection variables, and
the spark role's own variables where they differ from the role's defaults.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkctl.errors import UsageError
from sparkctl.ssh import ssh_arguments
from sparkctl.templates import evaluated

DEFAULT_INVENTORY = "inventory/lab.py"
INVENTORY_VARIABLE = "LANDLINE_INVENTORY"
MASTER_GROUP, WORKERS_GROUP = "spark_master", "spark_workers"
READ_TIMEOUT_S = 60


def host_port(host: str, port: int) -> str:
    """``host:port`` as in a URL: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Host:
    """One host. Its ssh is at ``address``, for the controller; its services are at ``peer_address``."""

    name: str
    address: str
    peer_address: str
    ssh_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """The master, the workers in the inventory's order, and where the role installed Spark on all of them."""

    master: Host
    workers: tuple[Host, ...]
    home: str = "/opt/spark"
    conf_dir: str = "/etc/spark"
    user: str = "spark"
    master_port: int = 7077
    master_ui_port: int = 8080
    worker_ui_port: int = 8081
    # A directory that the driver and all hosts see under the same path; "" when there is none, or it is
    # not known.
    shared_dir: str = ""

    @property
    def url(self) -> str:
        """The URL that workers and drivers connect to."""
        return f"spark://{host_port(self.master.peer_address, self.master_port)}"

    @property
    def ui_json(self) -> str:
        """The URL of the master's state as JSON."""
        return f"http://{host_port(self.master.peer_address, self.master_ui_port)}/json/"


def read_inventory(source: str | None = None) -> SparkCluster:
    """The cluster of the inventory ``source``, by default that of ``LANDLINE_INVENTORY``.
    Raises ``UsageError``.
    """
    return cluster_from(read_listing(source))


def read_listing(source: str | None = None) -> Mapping[str, Any]:
    """The output of ``ansible-inventory --list``, parsed from JSON. Raises ``UsageError``."""
    source = source or os.environ.get(INVENTORY_VARIABLE, DEFAULT_INVENTORY)
    if not Path(source).exists():
        raise UsageError(f"no inventory at {source}; set {INVENTORY_VARIABLE} to yours")
    program = Path(sys.executable).with_name("ansible-inventory")
    command = [str(program), "-i", source, "--list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise UsageError(f"the inventory {source} cannot be read:\n{done.stderr.strip()}")
    return evaluated(json.loads(done.stdout))


def cluster_from(inventory: Mapping[str, Any]) -> SparkCluster:
    """The cluster in the output of ``--list``. Raises ``UsageError`` when a group is missing or invalid."""
    variables: Mapping[str, Mapping[str, Any]] = inventory.get("_meta", {}).get("hostvars", {})
    masters, workers = (_members(inventory, group) for group in (MASTER_GROUP, WORKERS_GROUP))
    if len(masters) != 1:
        raise UsageError(f"the group {MASTER_GROUP} must have one host, it has {len(masters)}: {masters}")
    if not workers:
        raise UsageError(f"the group {WORKERS_GROUP} has no host")
    of_master = variables.get(masters[0], {})
    defaults = SparkCluster(
        _host(masters[0], of_master), tuple(_host(w, variables.get(w, {})) for w in workers)
    )
    return SparkCluster(
        defaults.master,
        defaults.workers,
        home=str(of_master.get("spark_home", defaults.home)),
        conf_dir=str(of_master.get("spark_conf_dir", defaults.conf_dir)),
        user=str(of_master.get("spark_user", defaults.user)),
        master_port=_port(of_master, "spark_master_port", defaults.master_port),
        master_ui_port=_port(of_master, "spark_master_webui_port", defaults.master_ui_port),
        worker_ui_port=_port(of_master, "spark_worker_webui_port", defaults.worker_ui_port),
        shared_dir=_plain(of_master.get("spark_shared_dir", "")),
    )


def _plain(value: Any) -> str:
    """The value, or "" if it is a template: ``--list`` does not evaluate templates."""
    return "" if "{{" in str(value) else str(value)


def _port(variables: Mapping[str, Any], name: str, default: int) -> int:
    text = str(variables.get(name, default))
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise UsageError(f"{name} is {text!r} in the inventory: give a port number, not an expression")
    return int(text)


def _members(inventory: Mapping[str, Any], group: str) -> list[str]:
    """The hosts of a group and of its child groups, each once, in the inventory's order."""
    entry = inventory.get(group, {})
    found = list(entry.get("hosts", []))
    for child in entry.get("children", []):
        found += [host for host in _members(inventory, child) if host not in found]
    return found


def _host(name: str, variables: Mapping[str, Any]) -> Host:
    address = str(variables.get("ansible_host", name))
    service = variables.get("spark_address", variables.get("landline_address", address))
    return Host(name, address, str(service), ssh_arguments(variables))
