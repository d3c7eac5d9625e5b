#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Inspects the ZooKeeper server of a host: how it runs, with which ensemble, and how new its tree is."""

from __future__ import annotations

DOCUMENTATION = """
module: zookeeper_server_info
short_description: How a ZooKeeper server runs, with which ensemble, and how new its tree is
description:
  - 'Inspects the ZooKeeper server of a host: how it runs, with which ensemble, and how new its tree is.'
author: The Landline authors (!UNKNOWN)
options:
  unit:
    description: Its systemd unit.
    type: str
    required: true
  config_file:
    description: Its configuration. What it says of directories, ports and members counts more than the options below.
    type: path
    required: true
  data_dir:
    description: Where the inventory wants snapshots.
    type: path
    required: true
  log_dir:
    description: Where the inventory wants the transaction log.
    type: path
    required: true
  mounts:
    description: Mount points that must be there for these directories.
    type: list
    elements: path
    default: []
  id:
    description: The id the inventory gives it; 0 for a host that is to have no server.
    type: int
    default: 0
  fingerprint:
    description: What it should run with.
    type: str
    default: ""
"""
EXAMPLES = """
- name: Look at the server
  landline.cluster.zookeeper_server_info:
    unit: zookeeper.service
    config_file: /etc/zookeeper/landline.cfg
    data_dir: /var/lib/zookeeper
    log_dir: /var/lib/zookeeper
    id: 1
"""
RETURN = """
present:
  description: Whether there is, was, or is to be a server.
  type: bool
  returned: always
state:
  description: stopped, current or changed.
  type: str
  returned: always
enabled:
  description: Whether it starts at boot.
  type: bool
  returned: always
mode:
  description: leader, follower, observer or standalone; empty while it has no quorum.
  type: str
  returned: always
id:
  description: The wanted id, else what myid says.
  type: int
  returned: always
myid:
  description: What myid says, 0 without one.
  type: int
  returned: always
members:
  description: Ids of its ensemble, of the running process, or of the configuration when it is stopped.
  type: list
  returned: always
servers:
  description: The configuration's lines of servers, by id.
  type: dict
  returned: always
epoch:
  description: Epoch of the last leader it followed.
  type: int
  returned: always
zxid:
  description: Its newest transaction, 0 when it has none.
  type: int
  returned: always
bare:
  description: Whether it has snapshots and no transaction log, so that its newest transactions may be lost.
  type: bool
  returned: always
sole:
  description: Whether it was the only server with the tree, and nothing was written since.
  type: bool
  returned: always
data_dir:
  description: Where its data is.
  type: str
  returned: always
log_dir:
  description: Where its transaction log is.
  type: str
  returned: always
client_address:
  description: Where its client port is reached from its own host.
  type: str
  returned: always
client_port:
  description: Its client port.
  type: int
  returned: always
mounts:
  description: The mount points that the wanted directories are on; none for the root's file system.
  type: list
  returned: always
missing_mounts:
  description: In words, the file systems that should be mounted for the directories and are not.
  type: list
  returned: always
moved_from:
  description: The directory its data is still in, when the inventory wants another one that has none.
  type: str
  returned: always
"""

import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.mounts import look_at_mounts, mounts_of
from ansible_collections.landline.cluster.plugins.module_utils.unit_state import fingerprint_of, unit_state
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_config import (
    members_in,
    parse_config,
    server_lines,
)
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_data import (
    VERSION_DIR,
    current_epoch,
    is_bare,
    last_zxid,
)
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_words import ask_mode, reachable

UNIT_DIR = "/etc/systemd/system"
SOLE_MARK = "landline-sole-copy"


def show(unit: str) -> dict[str, str]:
    """Returns the unit's state in systemd; raises `subprocess.CalledProcessError` when systemd does
    not answer.
    """
    argv = ["systemctl", "show", "--property=ActiveState,MainPID,UnitFileState", unit]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def look(params: dict[str, Any]) -> dict[str, Any]:
    """Returns everything that RETURN describes."""
    shown = show(params["unit"])
    text = read(Path(params["config_file"]))
    config = parse_config(text)
    data_dir = Path(config.get("dataDir", params["data_dir"]))
    log_dir = Path(config.get("dataLogDir", config.get("dataDir", params["log_dir"])))
    wanted = (Path(params["data_dir"]), Path(params["log_dir"]))
    zxid, moved_from = last_zxid(data_dir, log_dir), ""
    if params["id"] and (data_dir, log_dir) != wanted:
        there = last_zxid(*wanted)
        if zxid > there:
            moved_from = " and ".join(sorted({str(data_dir), str(log_dir)}))
        else:  # the directory was moved
            (data_dir, log_dir), zxid = wanted, there
    epoch = current_epoch(data_dir)
    pid = int(shown["MainPID"])
    state = unit_state(shown["ActiveState"], fingerprint_of(pid), params["fingerprint"])
    if shown["ActiveState"] == "active" and not pid:
        # A unit of another kind than the role's, of which systemd does not know the process.
        state = "changed"
    servers = server_lines(config)
    myid_text = read(data_dir / "myid").strip()
    myid = int(myid_text) if myid_text.isdecimal() else 0  # Debian's package has a text there
    own_id = params["id"] or myid
    members = (sorted(servers) or [own_id]) if text else []
    if state != "stopped" and pid:
        members = members_in(Path(f"/proc/{pid}/environ").read_bytes()) or members
    mark = read(data_dir / SOLE_MARK).split()
    places = [params["data_dir"], params["log_dir"]]
    listens_on, port = config.get("clientPortAddress", ""), int(config.get("clientPort", 2181))
    return {
        "present": bool(params["id"]) or (bool(text) and own_id > 0),
        "state": state,
        "enabled": shown["UnitFileState"] == "enabled",
        "mode": ask_mode(listens_on, port) if state != "stopped" else "",
        "id": own_id,
        "myid": myid,
        "members": members,
        "servers": {str(key): value for key, value in servers.items()},
        "epoch": epoch,
        "zxid": zxid,
        "bare": is_bare(data_dir, log_dir),
        "sole": mark == [str(epoch), f"{zxid:x}"],
        "client_address": reachable(listens_on),
        "client_port": port,
        "data_dir": str(data_dir),
        "log_dir": str(log_dir),
        "version_dirs": sorted({str(each / VERSION_DIR) for each in (data_dir, log_dir)}),
        "moved_from": moved_from,
        "mounts": mounts_of(places),
        "missing_mounts": list(
            look_at_mounts(places, params["mounts"], [f"{UNIT_DIR}/{params['unit']}"]).values()
        )
        if params["id"]
        else [],
    }


def main() -> None:
    module = AnsibleModule(
        {
            "unit": {"required": True},
            "config_file": {"type": "path", "required": True},
            "data_dir": {"type": "path", "required": True},
            "log_dir": {"type": "path", "required": True},
            "mounts": {"type": "list", "elements": "path", "default": []},
            "id": {"type": "int", "default": 0},
            "fingerprint": {"default": ""},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **look(module.params))
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"systemctl show: {error.stderr.strip()}")
    except FileNotFoundError as error:  # the process ended meanwhile
        module.fail_json(msg=f"the server ended while it was looked at: {error}")


if __name__ == "__main__":
    main()
