"""Reads the hosts of the Spark cluster from the Ansible inventory, so deployment and launcher use the
same hosts.

Groups: ``spark_master`` (one host; more are standbys) and ``spark_workers``. Host variables: Ansible's connection
variables, and the spark role's own variables where they differ from the role's defaults.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparkctl.errors import UsageError
from sparkctl.ssh import ssh_arguments
from sparkctl.templates import evaluated

DEFAULT_INVENTORY = "inventory/lab.py"
INVENTORY_VARIABLE = "LANDLINE_INVENTORY"
MASTER_GROUP, WORKERS_GROUP = "spark_master", "spark_workers"
READ_TIMEOUT_S = 60
SSH_PORT = 22


def bracketed(host: str) -> str:
    """A host as in a URL, and as Spark takes it: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def in_short(host: str) -> str:
    """A host as it is compared: an address without brackets, of IPv6 in its shortest form, which Spark may report."""
    address = host.strip("[]")
    try:
        return ipaddress.ip_address(address).compressed
    except ValueError:  # a name
        return address


def host_port(host: str, port: int) -> str:
    """``host:port`` as in a URL."""
    return f"{bracketed(host)}:{port}"


@dataclass(frozen=True, slots=True)
class Host:
    """One host. Its ssh is at ``address``, for the controller; its services are at ``peer_address``, and its ssh for
    the masters at that address and ``peer_port``.
    """

    name: str
    address: str
    peer_address: str
    ssh_arguments: tuple[str, ...] = ()
    peer_port: int = SSH_PORT


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """The masters, the workers in the inventory's order, and where the role installed Spark on all of them.

    ``master`` is the host from which all others are reached. It is not always the one that leads: that may be
    one of the ``standbys``, the other masters.
    """

    master: Host
    workers: tuple[Host, ...]
    standbys: tuple[Host, ...] = ()
    # The workers of each host that has more than one, by its name.
    workers_per_host: Mapping[str, int] = field(default_factory=dict)
    # The host of the history server; None: there is none.
    history: Host | None = None
    home: str = "/opt/spark"
    conf_dir: str = "/etc/spark"
    state_dir: str = "/var/lib/spark"
    user: str = "spark"
    master_port: int = 7077
    master_ui_port: int = 8080
    worker_ui_port: int = 8081
    history_port: int = 18080
    # A directory that the driver and all hosts see under the same path; "" when there is none, or it is
    # not known.
    shared_dir: str = ""

    @property
    def url(self) -> str:
        """The URL by which workers and drivers find the masters."""
        return "spark://" + ",".join(host_port(m.peer_address, self.master_port) for m in self.masters)

    @property
    def masters(self) -> tuple[Host, ...]:
        return (self.master, *self.standbys)

    def ui_urls(self) -> list[str]:
        """The URLs of the masters' web UIs."""
        return [f"http://{host_port(m.peer_address, self.master_ui_port)}" for m in self.masters]

    def based_at(self, name: str) -> SparkCluster:
        """The same cluster, reached from the master with this name or address. Raises ``UsageError``."""
        for master in self.masters:
            if name in {master.name, master.address, master.peer_address}:
                others = tuple(m for m in self.masters if m is not master)
                return replace(self, master=master, standbys=others)
        known = ", ".join(m.name for m in self.masters)
        raise UsageError(f"-H {name} is not a host of the group {MASTER_GROUP} ({known})")


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
    # It would say what it cannot read as a warning, and go on without any host.
    environment = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true", **os.environ}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=READ_TIMEOUT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"the inventory {source} was not read within {READ_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise UsageError(f"the inventory {source} cannot be read:\n{explained(done.stderr)}")
    return evaluated(json.loads(done.stdout))


def explained(error: str) -> str:
    """What ansible-inventory said as it failed, and what to do about files in a vault."""
    hint = "\nName the file with the vault's password in ANSIBLE_VAULT_PASSWORD_FILE."
    return error.strip() + (hint if "no vault secrets" in error else "")


def cluster_from(inventory: Mapping[str, Any]) -> SparkCluster:
    """The cluster in the output of ``--list``. Raises ``UsageError`` when a group is missing or invalid."""
    variables: Mapping[str, Mapping[str, Any]] = inventory.get("_meta", {}).get("hostvars", {})
    masters, workers = (_members(inventory, group) for group in (MASTER_GROUP, WORKERS_GROUP))
    for group, members in ((MASTER_GROUP, masters), (WORKERS_GROUP, workers)):
        if not members:
            raise UsageError(f"the group {group} has no host")
    of_master = variables.get(masters[0], {})
    first, *standbys = (_host(master, variables.get(master, {})) for master in masters)
    defaults = SparkCluster(first, tuple(_host(w, variables.get(w, {})) for w in workers))
    return SparkCluster(
        defaults.master,
        defaults.workers,
        standbys=tuple(standbys),
        workers_per_host={worker: _workers(variables.get(worker, {})) for worker in workers},
        history=first if _has_event_logs(of_master) else None,
        home=str(of_master.get("spark_home", defaults.home)),
        conf_dir=str(of_master.get("spark_conf_dir", defaults.conf_dir)),
        state_dir=str(of_master.get("spark_state_dir", defaults.state_dir)),
        user=str(of_master.get("spark_user", defaults.user)),
        master_port=_port(of_master, "spark_master_port", defaults.master_port),
        master_ui_port=_port(of_master, "spark_master_webui_port", defaults.master_ui_port),
        worker_ui_port=_port(of_master, "spark_worker_webui_port", defaults.worker_ui_port),
        history_port=_port(of_master, "spark_history_port", defaults.history_port),
        shared_dir=_plain(of_master.get("spark_shared_dir", "")),
    )


def _workers(variables: Mapping[str, Any]) -> int:
    text = str(variables.get("spark_workers_per_host", 1))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(
            f"spark_workers_per_host is {text!r} in the inventory: give a number, not an expression"
        )
    return int(text)


def _has_event_logs(of_master: Mapping[str, Any]) -> bool:
    """Whether the role installs a history server: by default where the hosts share a directory."""
    return bool(of_master.get("spark_event_log_dir", of_master.get("spark_shared_dir", "")))


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
    service = str(variables.get("spark_address", variables.get("landline_address", address)))
    return Host(name, address, service, ssh_arguments(variables), _peer_port(variables, address == service))


def _peer_port(variables: Mapping[str, Any], is_same: bool) -> int:
    """The port at which the masters reach a host's ssh. At another address than Ansible's, its port may be that of a
    way from outside.
    """
    ansibles = "ansible_port" if "ansible_port" in variables else "ansible_ssh_port"
    default = _port(variables, ansibles, SSH_PORT) if is_same else SSH_PORT
    return _port(variables, "spark_ssh_port", default)
