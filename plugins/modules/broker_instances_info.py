#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reports how the brokers of one host run, compared with what the inventory wants. Changes nothing."""

from __future__ import annotations

DOCUMENTATION = """
module: broker_instances_info
short_description: State of the brokers of a host
description:
  - Reports how the brokers of one host run, compared with what the inventory wants. Changes nothing.
author: The Landline authors (!UNKNOWN)
options:
  brokers:
    description:
      - The wanted brokers, each with id, unit, url, fingerprint, config (its properties file) and data_dirs.
    type: list
    elements: dict
    required: true
  properties:
    description: The properties that the brokers are to have, by unit, as JSON. No output of Ansible shows them.
    type: str
    required: true
  config_dir:
    description: Directory of the properties files.
    type: path
    required: true
  release_done:
    description: File that is there when the wanted release is installed.
    type: path
    required: true
  ports:
    description: All that the brokers are to listen on, each with host, port, unit, what it is for, and set_by.
    type: list
    elements: dict
    default: []
  mounts:
    description: Mount points that must be there for the brokers' directories.
    type: list
    elements: path
    default: []
  unit_dir:
    description: Directory of the brokers' unit files, which name the mount points that a broker was deployed with.
    type: path
    default: /etc/systemd/system
  before_dir:
    description: Directory with what the first broker of a roll had, until it was found as good as the others.
    type: path
    default: /opt/landline/before
  bar:
    description: Name of the file, beside a unit, by which a decommission keeps everybody from starting it.
    type: str
    default: decommission.conf
  http_host:
    description:
      - Address that the brokers' HTTP endpoints are to listen on.
      - It is refused when it is none of the host's own, for no broker would start then. Empty is all interfaces.
    type: str
    default: ""
  ca_file:
    description: PEM file on the host with the CA of the brokers' HTTP ports. It may be missing.
    type: path
  token_file:
    description: File on the host whose first line is the token of the HTTP ports. It may be missing.
    type: path
  timeout:
    description: Seconds a broker may take to say whether it is the controller.
    type: float
    default: 3
"""
EXAMPLES = """
- name: Look how they run
  landline.cluster.broker_instances_info:
    brokers: "{{ broker_all }}"
    properties: '{"landline-broker@1.service": {"broker.id": "1"}}'
    config_dir: /etc/landline
    release_done: /opt/landline/releases/0.1.0-abc/.installed
"""
RETURN = """
stopped:
  description: Units that do not run.
  type: list
  returned: always
outdated:
  description:
    - Units that run with another release or configuration, broken ones first, the controller's last.
    - Also those that would take a reload if their release could, or if they answered.
  type: list
  returned: always
reloading:
  description: Units that run as wanted but for settings that a running broker takes up; a reload is enough.
  type: list
  returned: always
running:
  description: All units that run, the controller's last.
  type: list
  returned: always
place:
  description:
    - When the host's turn in a roll comes.
    - C(broken) - first, for what one of its brokers needs may be this roll, and others may wait for it.
    - C(others) - then.
    - C(controller) - last, so that the controller moves once.
  type: str
  returned: always
https:
  description: Addresses of the HTTP ports that speak TLS now, as host:port.
  type: list
  returned: always
has_tokens:
  description: Whether there is a token_file.
  type: bool
  returned: always
unknown:
  description: Properties files of brokers that the inventory does not have here.
  type: list
  returned: always
taken:
  description: In words, the ports on which units that are to be started or rolled could not listen.
  type: list
  returned: always
mounts:
  description: The mount points that each broker's directories are on, by its unit; none for the root's file system.
  type: dict
  returned: always
missing_mounts:
  description: In words, the file systems that should be mounted for the brokers' directories and are not.
  type: list
  returned: always
installed:
  description: Whether the wanted release is complete.
  type: bool
  returned: always
installed_from:
  description:
    - The archive that the wanted release was installed from, by platform and sha256.
    - Empty when it is not installed, or by a playbook that kept no note of it.
  type: dict
  returned: always
configured:
  description: Whether the host has a directory for properties files.
  type: bool
  returned: always
retired:
  description:
    - Units that a decommission keeps everybody from starting, by C(unit), and its file, C(bar).
    - C(holder) and C(run) are what the decommission noted of itself. They are empty where that cannot be read.
  type: list
  elements: dict
  returned: always
unjudged:
  description:
    - HTTP addresses of the brokers of which before_dir has what they had before.
    - An earlier run ended before it knew whether they are as good as the others.
  type: list
  returned: always
"""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.broker_http import (
    SECURE,
    UNAUTHORIZED,
    ask,
    first_line,
)
from ansible_collections.landline.cluster.plugins.module_utils.broker_status import (
    is_written,
    loaded_version,
    status_in,
    version_of,
)
from ansible_collections.landline.cluster.plugins.module_utils.listening import (
    who_is_in_the_way,
    why_not_own,
)
from ansible_collections.landline.cluster.plugins.module_utils.mounts import look_at_mounts, mounts_of
from ansible_collections.landline.cluster.plugins.module_utils.unit_state import state_of

# Of all releases: the k-th broker of a host may get the port that another broker still has.
UNITS = "landline-broker@"
_STARTS = re.compile(r"^ExecStart=(\S+)", re.MULTILINE)
# What a decommission notes of itself, in a comment.
_NOTED = re.compile(r"^# (\{.*\})$", re.MULTILINE)
PLACES = ("broken", "others", "controller")


class Seen(NamedTuple):
    """A running broker's place in a roll, the address of its HTTP port if that speaks TLS now, and its status."""

    place: str
    https: str = ""
    status: Mapping[str, Any] | None = None


def seen(broker: dict[str, Any], timeout_s: float, ca_file: str | None = None, token: str = "") -> Seen:
    """Returns how a running broker is seen. Its place is C(broken) if it does not answer or does not serve yet,
    C(controller), or C(others). Without the token that it wants, the controller is not known.
    """
    answer = ask(broker, "/status", timeout_s, ca_file, token)
    secure = answer.code and answer.url.startswith(SECURE)
    https = answer.url[len(SECURE) :].partition("/")[0] if secure else ""
    if answer.code == UNAUTHORIZED:
        is_ready = ask(broker, "/readyz", timeout_s, ca_file, token).code == 200
        return Seen("others" if is_ready else "broken", https)
    status = status_in(answer.code, answer.body)
    if status is None or status.get("state") not in {"RunningAsBroker", "RunningAsController"}:
        return Seen("broken", https, status)
    return Seen("controller" if status.get("is_controller") else "others", https, status)


def must_reload(config: str, properties: Mapping[str, str], status: Mapping[str, Any] | None) -> bool:
    """Returns whether a broker that needs no restart goes by other settings than it should: its file is to
    change, or has changed and was not taken up because an earlier run ended before.
    """
    if not is_written(config, properties):
        return True
    loaded = loaded_version(status)
    return loaded is not None and loaded != version_of(config)


def takes_reloads(status: Mapping[str, Any] | None) -> bool:
    """Returns whether a broker says that it reloads its file. SIGHUP stops brokers of releases up to 0.2.0."""
    return "config_file" in (status or {})


def place_of_host(places: Iterable[str]) -> str:
    """Returns the place of a host whose running brokers have these places."""
    found = set(places)
    return next((place for place in ("broken", "controller") if place in found), "others")


def unknown_brokers(found: Iterable[str], wanted: Iterable[int]) -> list[str]:
    """Returns the names of properties files of brokers that the inventory does not have."""
    expected = {f"broker-{broker_id}.properties" for broker_id in wanted}
    return sorted(name for name in found if name not in expected)


def taken_ports(ports: Iterable[dict[str, Any]], units: Iterable[str]) -> list[str]:
    """Returns descriptions of the ports of these units that another process has."""
    wanted = set(units)
    found = []
    for each in ports:
        if each["unit"] in wanted:
            process = who_is_in_the_way(each["host"], int(each["port"]), UNITS)
            if process is not None:
                place = f"port {each['port']} for {each['for']}"
                found.append(f"{place} is in use by {process}: another one is set by {each['set_by']}")
    return found


def installed_from(done: Path) -> dict[str, str]:
    """Returns what the mark of a complete release notes of its archive: its second line."""
    lines = done.read_text().splitlines() if done.is_file() else []
    platform, _unused, sha256 = "".join(lines[1:2]).partition(" ")
    return {"platform": platform, "sha256": sha256} if sha256 else {}


def retired(unit_dir: str, units: Iterable[str], file_name: str) -> list[dict[str, Any]]:
    """Returns which units a decommission keeps everybody from starting, and what it noted of itself."""
    found = []
    for unit in units:
        path = Path(unit_dir, f"{unit}.d", file_name)
        if path.exists():
            noted = _NOTED.search(path.read_text(encoding="utf-8", errors="replace"))
            try:
                told = json.loads(noted[1]) if noted else {}
            except ValueError:
                told = {}
            run = told.get("run")
            found.append(
                {
                    "unit": unit,
                    "bar": str(path),
                    "holder": str(told.get("holder", "")),
                    "run": run if isinstance(run, dict) else {},
                }
            )
    return found


def can_go_back(before: Path) -> bool:
    """Returns whether a copy of a broker's unit is there, and the release that it starts."""
    if not before.is_file():
        return False
    program = _STARTS.search(before.read_text())
    return program is not None and Path(program[1]).exists()


def look(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the module's result."""
    brokers, config_dir = params["brokers"], Path(params["config_dir"])
    properties = json.loads(params["properties"])
    states = {broker["unit"]: state_of(broker["unit"], broker["fingerprint"]) for broker in brokers}
    running = [broker for broker in brokers if states[broker["unit"]] != "stopped"]
    ca_file, token_file = params["ca_file"], params["token_file"]
    token = first_line(token_file) if running else ""
    looks = {broker["unit"]: seen(broker, params["timeout"], ca_file, token) for broker in running}
    in_order = sorted(looks, key=lambda unit: PLACES.index(looks[unit].place))
    reloading = [
        broker["unit"]
        for broker in running
        if states[broker["unit"]] == "current"
        and must_reload(broker["config"], properties[broker["unit"]], looks[broker["unit"]].status)
    ]
    # What does not reload is restarted, in its turn.
    states |= {unit: "changed" for unit in reloading if not takes_reloads(looks[unit].status)}
    dirs = {broker["unit"]: broker.get("data_dirs", []) for broker in brokers}
    to_start = [unit for unit, state in states.items() if state != "current"]
    files = (path.name for path in config_dir.glob("broker-*.properties"))
    return {
        "stopped": [unit for unit, state in states.items() if state == "stopped"],
        "outdated": [unit for unit in in_order if states[unit] == "changed"],
        "reloading": [unit for unit in reloading if states[unit] == "current"],
        "running": in_order,
        "place": place_of_host(each.place for each in looks.values()),
        "https": [each.https for each in looks.values() if each.https],
        "has_tokens": bool(token_file) and Path(token_file).exists(),
        "unknown": unknown_brokers(files, (int(broker["id"]) for broker in brokers)),
        "taken": taken_ports(params["ports"], to_start),
        "mounts": {unit: mounts_of(each) for unit, each in dirs.items()},
        "missing_mounts": list(
            look_at_mounts(
                [each for found in dirs.values() for each in found],
                params["mounts"],
                [f"{params['unit_dir']}/{unit}" for unit in dirs],
            ).values()
        ),
        "installed": Path(params["release_done"]).is_file(),
        "installed_from": installed_from(Path(params["release_done"])),
        "configured": config_dir.is_dir(),
        "retired": retired(params["unit_dir"], states, params["bar"]),
        # Its unit is copied last.
        "unjudged": [
            broker["url"] for broker in brokers if can_go_back(Path(params["before_dir"], broker["unit"]))
        ],
    }


def main() -> None:
    module = AnsibleModule(
        {
            "brokers": {"type": "list", "elements": "dict", "required": True},
            "properties": {"type": "str", "required": True, "no_log": True},
            "config_dir": {"type": "path", "required": True},
            "release_done": {"type": "path", "required": True},
            "ports": {"type": "list", "elements": "dict", "default": []},
            "mounts": {"type": "list", "elements": "path", "default": []},
            "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
            "before_dir": {"type": "path", "default": "/opt/landline/before"},
            "bar": {"default": "decommission.conf"},
            "http_host": {"type": "str", "default": ""},
            "ca_file": {"type": "path"},
            "token_file": {"type": "path"},
            "timeout": {"type": "float", "default": 3.0},
        },
        supports_check_mode=True,
    )
    wrong = why_not_own(module.params["http_host"])
    if wrong is not None:
        module.fail_json(msg=wrong)
    try:
        module.exit_json(changed=False, **look(module.params))
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"systemctl show: {error.stderr.strip()}")


if __name__ == "__main__":
    main()
