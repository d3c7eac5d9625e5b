#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Asks all servers of a ZooKeeper ensemble in parallel whether they serve.

Also asks one of them for the registered brokers, and reports what runs on this host.
"""

from __future__ import annotations

DOCUMENTATION = """
module: zookeeper_quorum_info
short_description: Whether a ZooKeeper ensemble serves, and which brokers are registered, as seen from this host
description:
  - Asks all servers of a ZooKeeper ensemble in parallel whether they serve.
  - Also asks one of them for the registered brokers, and reports what runs on this host.
author: The Landline authors (!UNKNOWN)
options:
  connect:
    description: Kafka's zookeeper.connect.
    type: str
    required: true
  within_s:
    description: Seconds in which some server has to serve; an election may be under way.
    type: float
    default: 6
  broker_units:
    description: Pattern of the brokers' units.
    type: str
    required: true
  config_dir:
    description: Where the running brokers' properties are, as broker-ID.properties; empty to read none.
    type: str
    default: ""
  server_unit:
    description: Unit of this host's ZooKeeper server; empty for a host that is to have none.
    type: str
    default: ""
"""
EXAMPLES = """
- name: Ask ZooKeeper's servers
  landline.cluster.zookeeper_quorum_info:
    connect: 192.0.2.11:2181,192.0.2.12:2181,192.0.2.13:2181/kafka
    broker_units: landline-broker@*.service
"""
RETURN = """
servers:
  description:
    - By address, the state of each server.
    - C(serves) - it is part of a quorum.
    - C(alone) - it answers that it serves nobody.
    - C(silent) - it cannot be reached, or says nothing.
    - C(unclear) - it answers what says nothing of this, as one that speaks TLS.
  type: dict
  returned: always
registered:
  description:
    - By id, the brokers that are registered in it, each with its C(endpoints), as NAME://host:port, and the listener
      that it C(speaks_by), empty where it does not say.
    - Null where no server would say.
  type: dict
  returned: always
controller:
  description: Id of the broker that is the controller; null where there is none, or no server would say.
  type: int
  returned: always
broker_runs:
  description: Whether a broker of this host runs.
  type: bool
  returned: always
broker_connects:
  description: Of each broker of this host that runs, the servers that its properties name, by its unit.
  type: dict
  returned: always
server_stopped:
  description: Whether this host is to have a server, and it does not run.
  type: bool
  returned: always
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_tree import (
    TreeError,
    controller_id,
    registered_brokers,
)
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_words import (
    ask_state,
    chroot_in,
    servers_in,
)

PAUSE_S = 0.5
# A broker that recovers its logs has read its properties.
_READ = "active,activating,reloading"
_CONNECT = re.compile(r"^[ \t]*zookeeper\.connect[ \t]*[=:][ \t]*(.*)$", re.MULTILINE)


def ask_all(connect: str, within_s: float) -> dict[str, str]:
    """Returns the state by address; retries until a server serves, or for ``within_s`` seconds."""
    servers = servers_in(connect)
    deadline = time.monotonic() + within_s
    with ThreadPoolExecutor(len(servers) or 1) as pool:
        while True:
            states = dict(
                zip(servers, pool.map(lambda server: ask_state(*servers[server]), servers), strict=True)
            )
            if "serves" in states.values() or time.monotonic() >= deadline:
                return states
            time.sleep(PAUSE_S)


def ask_tree(connect: str, states: Mapping[str, str], question: Callable[[str, int, str], Any]) -> Any:
    """Returns what the first server that answers a question about the tree says; None when none does."""
    servers, chroot = servers_in(connect), chroot_in(connect)
    # An unclear server may serve and only have its four-letter commands disabled.
    for wanted in ("serves", "unclear"):
        for server in (each for each, state in states.items() if state == wanted):
            try:
                return question(*servers[server], chroot)
            except (OSError, TreeError, ValueError):
                continue
    return None


def ask_for_brokers(connect: str, states: Mapping[str, str]) -> dict[str, dict[str, Any]] | None:
    """Returns the registered brokers by id; None when no server says."""
    found: dict[str, dict[str, Any]] | None = ask_tree(connect, states, registered_brokers)
    return found


def active(pattern: str, states: str = "active") -> list[str]:
    """Returns the units in these states whose names match; raises `subprocess.CalledProcessError`."""
    argv = ["systemctl", "list-units", f"--state={states}", "--plain", "--no-legend", pattern]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def servers_named(config_dir: str, units: Iterable[str]) -> dict[str, list[str]]:
    """Returns the servers in `zookeeper.connect` of each unit's broker; nothing of one without such a file or line."""
    found = {}
    for unit in units:
        broker_id = unit.partition("@")[2].partition(".")[0]
        try:
            text = Path(config_dir, f"broker-{broker_id}.properties").read_text(
                encoding="utf-8", errors="replace"
            )
            connects = _CONNECT.findall(text)
            if connects:
                found[unit] = sorted(servers_in(connects[-1].replace("\\", "")))
        except (OSError, ValueError):  # the broker would not start by it either
            continue
    return found


def main() -> None:
    module = AnsibleModule(
        {
            "connect": {"required": True},
            "within_s": {"type": "float", "default": 6.0},
            "broker_units": {"required": True},
            "config_dir": {"default": ""},
            "server_unit": {"default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        states = ask_all(params["connect"], params["within_s"])
        running = active(params["broker_units"])
        module.exit_json(
            changed=False,
            broker_runs=bool(running),
            broker_connects=servers_named(params["config_dir"], active(params["broker_units"], _READ))
            if params["config_dir"]
            else {},
            server_stopped=bool(params["server_unit"]) and not active(params["server_unit"]),
            servers=states,
            registered=ask_for_brokers(params["connect"], states),
            controller=ask_tree(params["connect"], states, controller_id),
        )
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"systemctl: {error.stderr.strip()}")


if __name__ == "__main__":
    main()
