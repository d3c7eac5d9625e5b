"""A lab as an Ansible inventory: which hosts run brokers, ZooKeeper and Spark, and how to reach them.

Pure, except that it reads the lab's state. Ansible runs the script `inventory/lab.py`, and must run inside
the lab's network: `.venv/bin/lab enter NAME -- ansible-playbook deploy.yml`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lab import identity, naming
from lab.errors import LabError, UsageError
from lab.state import NAME_ENV, Bind, LabFiles, LabState, state_root

BROKERS_PER_HOST_ENV = "BROKERS_PER_HOST"
MAX_ZOOKEEPER_HOSTS = 3

_USAGE = "usage: inventory/lab.py --list | --host HOST"

Variables = dict[str, Any]


def zookeeper_count(hosts: int) -> int:
    """The number of ZooKeeper servers: 1, or 3 from three hosts on; never an even number."""
    return MAX_ZOOKEEPER_HOSTS if hosts >= MAX_ZOOKEEPER_HOSTS else 1


def groups(state: LabState, files: LabFiles, brokers_per_host: int) -> Variables:
    """The output of `--list`: the groups, and every host's variables under `_meta`."""
    hosts = state.host_list()
    names = [host.name for host in hosts]
    members = {
        "brokers": names,
        "zookeeper": names[: zookeeper_count(len(names))],
        "spark_master": names[:1],
        "spark_workers": names,
    }
    variables = {host.name: host_variables(host, files, brokers_per_host, state.binds) for host in hosts}
    listing: Variables = {group: {"hosts": inside} for group, inside in members.items()}
    listing["all"] = {"children": [*members, "ungrouped"]}
    listing["_meta"] = {"hostvars": variables}
    return listing


def host_variables(
    host: naming.Host, files: LabFiles, brokers_per_host: int, binds: Sequence[Bind] = ()
) -> Variables:
    """One host's variables. Shared ssh connections are per lab, because other labs have the
    same addresses.
    """
    ssh_options = ["-F", str(files.ssh_config), "-o", f"ControlPath={identity.control_path(files)}"]
    variables: Variables = {
        "ansible_host": host.address,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(files.key),
        "ansible_ssh_common_args": shlex.join(ssh_options),
        "ansible_python_interpreter": "/usr/bin/python3",
        "landline_lab": files.home.name,
        "brokers_per_host": brokers_per_host,
        "broker_first_id": (host.index - 1) * brokers_per_host + 1,
        "zookeeper_id": host.index,
    }
    # A directory that the controller and all hosts see under the same path.
    common = [bind.target for bind in binds if bind.writable and bind.source == bind.target]
    return {**variables, "spark_shared_dir": common[0]} if common else variables


def brokers_per_host(environment: Mapping[str, str]) -> int:
    """The value of BROKERS_PER_HOST, 1 by default. Raises `UsageError` unless it is a number from 1 to 64."""
    text = environment.get(BROKERS_PER_HOST_ENV) or "1"
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise UsageError(f"{BROKERS_PER_HOST_ENV}={text!r}: give a number from 1 to 64")
    return int(text)


def answer(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The JSON for Ansible's request (`--list`, or `--host` and a name)."""
    name = naming.checked_lab_name(environment.get(NAME_ENV) or naming.DEFAULT_LAB)
    files = LabFiles(state_root(), name)
    state = files.load()
    if state is None:
        raise LabError(f"there is no lab {name!r}: make it with `.venv/bin/lab up --name {name}`")
    listing = groups(state, files, brokers_per_host(environment))
    match list(arguments):
        case ["--list"]:
            return json.dumps(listing, indent=2)
        case ["--host", host]:
            return json.dumps(listing["_meta"]["hostvars"].get(host, {}), indent=2)
        case _:
            raise UsageError(_USAGE)


def main() -> None:
    """Answer Ansible's request; an error is one line on stderr."""
    try:
        print(answer(sys.argv[1:], os.environ))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
