#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Inspects an Apache Kafka broker that was installed from its tarball: its unit, server.properties and data."""

from __future__ import annotations

DOCUMENTATION = """
module: kafka_server_info
short_description: How Apache Kafka's broker of a host runs, and with which settings and data
description:
  - 'Inspects an Apache Kafka broker that was installed from its tarball: its unit, server.properties and
    data.'
author: The Landline authors (!UNKNOWN)
options:
  unit:
    description: Its systemd unit.
    type: str
    required: true
  config:
    description: Its server.properties; empty, the last file.properties in the unit's ExecStart.
    type: str
    default: ""
  other_unit:
    description: Landline's unit pattern, whose brokers run instead of it.
    type: str
    default: landline-broker@*.service
  current:
    description: The link to Landline's release, which a host has when its migration is done.
    type: path
    default: /opt/landline/current
"""
EXAMPLES = """
- name: Look at Kafka
  landline.cluster.kafka_server_info:
    unit: kafka.service
"""
RETURN = """
active:
  description: Whether the unit runs.
  type: bool
  returned: always
enabled:
  description: Whether it starts at boot.
  type: bool
  returned: always
user:
  description: The user that it runs as.
  type: str
  returned: always
group:
  description: The user's group, or the unit's.
  type: str
  returned: always
config:
  description: Its server.properties.
  type: str
  returned: always
properties:
  description: What that file says, by key.
  type: dict
  returned: always
log_dirs:
  description: Its log directories.
  type: list
  returned: always
metas:
  description: The meta.properties of each log directory that has one, by directory.
  type: dict
  returned: always
serving:
  description: Whether a unit of Landline's is active on the host.
  type: bool
  returned: always
switched:
  description: Whether the host has the link to Landline's release.
  type: bool
  returned: always
wrong:
  description: What could not be found, in words; empty if all was.
  type: str
  returned: always
"""

import re
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.kafka_properties import parse_properties

SHOWN = ("LoadState", "ActiveState", "UnitFileState", "User", "Group", "ExecStart")
DEFAULT_LOG_DIR = "/tmp/kafka-logs"  # noqa: S108 - Kafka's default


def show(unit: str) -> dict[str, str]:
    """Returns the unit's state in systemd; raises `subprocess.CalledProcessError`."""
    argv = ["systemctl", "show", f"--property={','.join(SHOWN)}", unit]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def group_of(user: str) -> str:
    """Returns the name of a user's group; raises `subprocess.CalledProcessError` for no such user."""
    argv = ["id", "--group", "--name", user]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def config_in(exec_start: str) -> str:
    """Returns the properties file in a unit's ExecStart, as systemd shows it; empty if there is none."""
    found = re.findall(r"(\S+\.properties)\b", exec_start)
    return str(found[-1]) if found else ""


def log_dirs_in(properties: dict[str, str]) -> list[str]:
    """Returns log.dirs, or log.dir, as Kafka reads them."""
    text = properties.get("log.dirs") or properties.get("log.dir") or DEFAULT_LOG_DIR
    return [each.strip() for each in text.split(",") if each.strip()]


def active(pattern: str) -> bool:
    """Returns whether a unit whose name matches is active; raises `subprocess.CalledProcessError`."""
    argv = ["systemctl", "list-units", "--state=active,activating", "--plain", "--no-legend", pattern]
    return bool(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())


def look(params: dict[str, Any]) -> dict[str, Any]:
    """Returns everything that RETURN describes."""
    shown = show(params["unit"])
    user = shown["User"] or "root"
    found: dict[str, Any] = {
        "active": shown["ActiveState"] in {"active", "activating", "reloading"},
        "enabled": shown["UnitFileState"] == "enabled",
        "user": user,
        "group": shown["Group"] or group_of(user),
        "config": params["config"] or config_in(shown["ExecStart"]),
        "properties": {},
        "log_dirs": [],
        "metas": {},
        "serving": active(params["other_unit"]),
        "switched": Path(params["current"]).is_symlink(),
        "wrong": "",
    }
    if shown["LoadState"] != "loaded":
        return found | {"wrong": f"there is no unit {params['unit']} (broker_migrate_unit)"}
    if not Path(found["config"] or "/").is_file():
        missing = found["config"] or f"a properties file in {params['unit']}"
        return found | {"wrong": f"there is no {missing} (broker_migrate_config)"}
    properties = parse_properties(Path(found["config"]).read_text(encoding="utf-8"))
    metas = {each: Path(each, "meta.properties") for each in log_dirs_in(properties)}
    return found | {
        "properties": properties,
        "log_dirs": list(metas),
        "metas": {
            each: parse_properties(path.read_text(encoding="utf-8"))
            for each, path in metas.items()
            if path.is_file()
        },
    }


def main() -> None:
    module = AnsibleModule(
        {
            "unit": {"required": True},
            "config": {"default": ""},
            "other_unit": {"default": "landline-broker@*.service"},
            "current": {"type": "path", "default": "/opt/landline/current"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **look(module.params))
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"{' '.join(error.cmd)}: {error.stderr.strip()}")
    except (OSError, UnicodeDecodeError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
