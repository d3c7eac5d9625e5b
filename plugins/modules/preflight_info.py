#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reports what a host has, for the check before a deployment. Decides nothing, changes nothing."""

from __future__ import annotations

DOCUMENTATION = """
module: preflight_info
short_description: What a host has, for the check before a deployment
description:
  - Reports what a host has, for the check before a deployment. Decides nothing, changes nothing.
author: The Landline authors (!UNKNOWN)
options:
  directories:
    description: Directories to look at; what is missing is looked for where it would be made.
    type: list
    elements: path
    default: []
  disks:
    description:
      - What has its data on disks, each with directories, units and set_by.
      - The units are their files, which may assert mount points.
    type: list
    elements: dict
    default: []
  ports:
    description: What is to listen, each with host, port and unit, how the name of the unit begins that may have it.
    type: list
    elements: dict
    default: []
  http_host:
    description: Address that the brokers' HTTP endpoints are to listen on. Empty is all interfaces.
    type: str
    default: ""
  names:
    description: Names and addresses to resolve.
    type: list
    elements: str
    default: []
  data_dirs:
    description: Data directories of brokers.
    type: list
    elements: path
    default: []
  config_dir:
    description: Directory of the brokers' properties files.
    type: path
  python:
    description: Interpreter for the brokers.
    type: path
    default: /usr/bin/python3
  files:
    description: Files whose existence is of interest.
    type: list
    elements: path
    default: []
  connect:
    description: Kafka's zookeeper.connect, to be asked for the cluster's id; empty to ask nobody.
    type: str
    default: ""
  zookeeper:
    description:
      - The ZooKeeper server to look for, with unit, config_file, data_dir and log_dir; empty for none.
      - The directories are those that the inventory wants.
    type: dict
    default: {}
  asked_at:
    description: The control node's clock, which is returned as it is.
    type: float
    default: 0
  timeout_s:
    description: Seconds that a ZooKeeper server may take.
    type: float
    default: 1.5
"""
EXAMPLES = """
- name: Look at the host
  landline.cluster.preflight_info:
    directories: [/opt/landline, /var/lib/landline]
    names: [kafka-a, kafka-b]
"""
RETURN = """
time:
  description: The host's clock, in seconds since 1970.
  type: float
  returned: always
asked_at:
  description: The control node's clock when it asked, as it was given.
  type: float
  returned: always
synchronised:
  description: Whether its clock is kept right; null in a container, whose clock is its host's.
  type: bool
  returned: always
system:
  description: Id and version of the distribution, as in /etc/os-release, and the machine.
  type: dict
  returned: always
versions:
  description:
    - Versions of systemd, python and java, empty for what is missing.
    - Also that of the Python that runs this module, as C(ansible).
  type: dict
  returned: always
memory_mb:
  description: The memory.
  type: int
  returned: always
directories:
  description: By directory, its mount point, whether it is one itself, what is free, and whether it can be written to.
  type: dict
  returned: always
missing_mounts:
  description:
    - The file systems that /etc/fstab or a unit wants for the disks' directories, and that are not mounted.
    - Each has point, what in words, and set_by.
  type: list
  returned: always
taken:
  description: Ports that another process has, each with port and process.
  type: list
  returned: always
not_own:
  description: In words, why no broker could listen on http_host; null if one could.
  type: str
  returned: always
addresses:
  description: The host's own addresses.
  type: list
  returned: always
names:
  description: By name, the addresses that it resolves to; empty for what does not resolve.
  type: dict
  returned: always
data:
  description: By data directory with a meta.properties, its broker.id and cluster.id.
  type: dict
  returned: always
properties_files:
  description: Names of the brokers' properties files.
  type: list
  returned: always
files:
  description: Those of the files that exist.
  type: list
  returned: always
zookeeper:
  description:
    - How a ZooKeeper server is known here. runs is whether its unit is active. is_ours is whether the role set it up.
    - The members are the ids of its ensemble, if it is more than one.
    - The zxid is that of a tree which is not the role's. Null without the option.
  type: dict
  returned: always
cluster_id:
  description: The cluster's id by ZooKeeper; empty if its tree has none, null if no server would say.
  type: str
  returned: always
"""

import contextlib
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.listening import (
    who_is_in_the_way,
    why_not_own,
)
from ansible_collections.landline.cluster.plugins.module_utils.mounts import look_at_mounts
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_config import (
    members_in,
    parse_config,
    server_lines,
)
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_data import last_zxid
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_tree import Tree, TreeError
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_words import chroot_in, servers_in

# Any of these keeps the clock right.
TIME_UNITS = ("systemd-timesyncd", "chrony", "chronyd", "ntp", "ntpd", "ntpsec", "openntpd")
ANSWER_S = 5.0
AT_ONCE = 16
MEGABYTE = 1 << 20


def said_by(*argv: str) -> str:
    """Returns what a command wrote, its errors too; empty if there is no such command or it hangs."""
    try:
        done = subprocess.run(
            argv, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def is_synchronised() -> bool | None:
    """Returns whether a service keeps the clock right; None in a container, which cannot."""
    if said_by("systemd-detect-virt", "--container").strip() not in {"none", ""}:
        return None
    return "active" in said_by("systemctl", "is-active", *TIME_UNITS).splitlines()


def system() -> dict[str, str]:
    """Returns the distribution's id and version, and the machine."""
    told = values_in(text_of(Path("/etc/os-release")))
    return {"id": told.get("ID", ""), "version": told.get("VERSION_ID", ""), "machine": platform.machine()}


def values_in(text: str) -> dict[str, str]:
    """Returns the values of lines key=value, without their quotes."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _unused, value in lines}


def versions(python: str) -> dict[str, str]:
    """Returns the versions of what the roles use."""
    of_python = said_by(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    return {
        "systemd": first_number(said_by("systemctl", "--version")),
        "python": of_python if re.fullmatch(r"\d+\.\d+", of_python) else "",
        "ansible": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "java": java_version(said_by("java", "-version")),
    }


def first_number(text: str) -> str:
    """Returns the first number in a text, or nothing."""
    found = re.search(r"\d+", text)
    return found[0] if found else ""


def java_version(text: str) -> str:
    """Returns Java's major version from what java -version says; 1.8 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return found[1] if found else ""


def memory_mb(text: str) -> int:
    """Returns the memory by /proc/meminfo."""
    found = re.search(r"^MemTotal: *(\d+) kB", text, re.MULTILINE)
    return int(found[1]) // 1024 if found else 0


def directory(wanted: str) -> dict[str, Any]:
    """Returns what is known of a directory, by what it is made in if it is missing."""
    path = Path(wanted)
    while not path.exists() and path != path.parent:
        path = path.parent
    told = os.statvfs(path)
    mount = path.resolve()
    while not mount.is_mount():
        mount = mount.parent
    return {
        "exists": str(path) == wanted.rstrip("/") or wanted == "/",
        "is_directory": path.is_dir(),
        "mount": str(mount),
        "is_mount": Path(wanted).is_mount(),
        "device": path.stat().st_dev,
        "free_mb": told.f_bavail * told.f_frsize // MEGABYTE,
        "free_files": told.f_favail if told.f_files else -1,
        "read_only": bool(told.f_flag & os.ST_RDONLY),
    }


def missing_mounts(disks: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Returns the file systems that the host itself wants for the data, and that are not mounted."""
    return [
        {"point": point, "what": what, "set_by": str(each["set_by"])}
        for each in disks
        for point, what in look_at_mounts(each["directories"], (), each["units"]).items()
    ]


def resolve(name: str) -> list[str]:
    """Returns the addresses of a name; empty if it has none."""
    try:
        found = socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return sorted({str(each[4][0]) for each in found})


def taken(ports: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the ports that another process has, each with its number and the process."""
    found = []
    for each in ports:
        process = who_is_in_the_way(str(each["host"]), int(each["port"]), str(each["unit"]))
        if process is not None:
            found.append({"port": int(each["port"]), "process": process})
    return found


def own_addresses() -> list[str]:
    """Returns the addresses of this host."""
    said = said_by("ip", "-oneline", "address", "show")
    return sorted(set(re.findall(r" inet6? ([0-9a-fA-F.:]+)", said)))


def data_in(directories: Iterable[str]) -> dict[str, dict[str, str]]:
    """Returns whose data is in each directory, by the meta.properties that a broker writes there."""
    found = {}
    for each in directories:
        told = values_in(text_of(Path(each, "meta.properties")))
        if told:
            found[each] = {"broker_id": told.get("broker.id", ""), "cluster_id": told.get("cluster.id", "")}
    return found


def zookeeper(wanted: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns how a ZooKeeper server is known here; None if none is looked for."""
    if not wanted:
        return None
    shown = values_in(said_by("systemctl", "show", "--property=ActiveState,MainPID", wanted["unit"]))
    text = text_of(Path(wanted["config_file"]))
    started_with = members_in(environ_of(shown.get("MainPID", "0")))
    is_ours = bool(text or started_with)
    return {
        "runs": shown.get("ActiveState") in {"active", "activating", "reloading"},
        "is_ours": is_ours,
        "members": sorted({*server_lines(parse_config(text)), *started_with}),
        "zxid": 0 if is_ours else last_zxid(Path(wanted["data_dir"]), Path(wanted["log_dir"])),
    }


def environ_of(pid: str) -> bytes:
    """Returns the environment that a process was started with; empty if there is none."""
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""


def text_of(path: Path) -> str:
    """Returns a file's text; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def cluster_id(connect: str, timeout_s: float) -> str | None:
    """Returns the cluster's id by the first of these ZooKeeper servers that says something; None if none does."""
    servers, chroot = servers_in(connect), chroot_in(connect)

    def ask(server: str) -> str | None:
        with (
            contextlib.suppress(OSError, TreeError, ValueError),
            Tree(*servers[server], chroot, timeout_s) as tree,
        ):
            data = tree.data("/cluster/id")
            return re.sub(r'.*"id" *: *"([^"]*)".*', r"\1", data.decode(errors="replace")) if data else ""
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = [each for each in pool.map(ask, servers) if each is not None]
    return max(said, default=None, key=len)


def look(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns everything that RETURN describes."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Not strict, which Python 3.9 does not know: it is to be told that it is too old.
        names = dict(zip(params["names"], pool.map(resolve, params["names"])))  # noqa: B905
    data = data_in(params["data_dirs"])
    config_dir = Path(params["config_dir"]) if params["config_dir"] else None
    return {
        "synchronised": is_synchronised(),
        "system": system(),
        "versions": versions(params["python"]),
        "memory_mb": memory_mb(text_of(Path("/proc/meminfo"))),
        "directories": {each: directory(each) for each in params["directories"]},
        "missing_mounts": missing_mounts(params["disks"]),
        "taken": taken(params["ports"]),
        "not_own": why_not_own(params["http_host"]),
        "addresses": own_addresses(),
        "names": names,
        "data": data,
        "properties_files": sorted(p.name for p in config_dir.glob("broker-*.properties"))
        if config_dir
        else [],
        "files": [each for each in params["files"] if Path(each).exists()],
        "zookeeper": zookeeper(params["zookeeper"]),
        "cluster_id": cluster_id(params["connect"], params["timeout_s"])
        if params["connect"] and data
        else None,
    }


def main() -> None:
    began = time.time()
    module = AnsibleModule(
        {
            "directories": {"type": "list", "elements": "path", "default": []},
            "disks": {"type": "list", "elements": "dict", "default": []},
            "ports": {"type": "list", "elements": "dict", "default": []},
            "http_host": {"type": "str", "default": ""},
            "names": {"type": "list", "elements": "str", "default": []},
            "data_dirs": {"type": "list", "elements": "path", "default": []},
            "config_dir": {"type": "path"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "files": {"type": "list", "elements": "path", "default": []},
            "connect": {"type": "str", "default": ""},
            "zookeeper": {"type": "dict", "default": {}},
            "asked_at": {"type": "float", "default": 0.0},
            "timeout_s": {"type": "float", "default": 1.5},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, time=began, asked_at=module.params["asked_at"], **look(module.params))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
