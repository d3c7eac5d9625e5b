#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Says which boot of a host runs, how old it is, and whether a reboot of it was noted or is needed.

A round of reboots notes on each host the boot that is to end. So an interrupted round goes on where it was: a host
that runs another boot than the noted one has been rebooted, by whomever.
"""

from __future__ import annotations

DOCUMENTATION = """
module: host_boot_info
short_description: Which boot of a host runs, and whether it is to end
description:
  - Says which boot of a host runs, how old it is, and whether a reboot of it was noted or is needed.
  - 'A round of reboots notes on each host the boot that is to end. So an interrupted round goes on where
    it was: a host that runs another boot than the noted one has been rebooted, by whomever.'
author: The Landline authors (!UNKNOWN)
options:
  note:
    description:
      - File on the host with the id of the boot that is to end. Its second line is the run that reboots the host, as
        the stop permit names it, and its third one what that run noted of itself, in JSON.
      - It may be missing, and so may lines of it.
    type: path
    required: true
  needed_by:
    description: Files whose existence says that the host needs a reboot.
    type: list
    elements: path
    default: [/run/reboot-required]
"""
EXAMPLES = """
- name: Look at the host
  landline.cluster.host_boot_info:
    note: /var/lib/landline-reboot
"""
RETURN = """
boot_id:
  description: The kernel's id of this boot.
  type: str
  returned: always
age_s:
  description: Seconds since this boot.
  type: float
  returned: always
noted:
  description: The id in the note; empty without a note.
  type: str
  returned: always
holder:
  description: Who reboots the host, by the note.
  type: str
  returned: always
run:
  description: What that run noted of itself. Empty if it noted nothing.
  type: dict
  returned: always
needed:
  description: Whether the host says that it needs a reboot.
  type: bool
  returned: always
has_apt:
  description: Whether the host's packages are apt's.
  type: bool
  returned: always
"""

import json
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

_STARTED = 19  # of the fields after the program's name in /proc/PID/stat


def started_ticks(stat: str) -> int:
    """Returns when a process began, in clock ticks since the machine's boot, from /proc/PID/stat. The program's
    name, in brackets, may have any character.
    """
    return int(stat.rpartition(")")[2].split()[_STARTED])


def age_of_boot(init_stat: str, uptime: str, ticks_per_s: int) -> float:
    """Returns the age in seconds of PID 1, from /proc/1/stat and /proc/uptime. In a container this is the
    container's, whose /proc/uptime is its machine's.
    """
    return float(uptime.split(maxsplit=1)[0]) - started_ticks(init_stat) / ticks_per_s


def read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def run_of(told: str) -> dict[str, Any]:
    """Returns what a run noted of itself; nothing if that cannot be read."""
    try:
        found = json.loads(told)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def look(note: str, needed_by: list[str]) -> dict[str, Any]:
    """Returns everything that RETURN describes."""
    noted, holder, told = [*read(note).split("\n"), "", ""][:3]
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip(),
        "age_s": round(
            age_of_boot(
                Path("/proc/1/stat").read_text(encoding="utf-8"),
                Path("/proc/uptime").read_text(encoding="utf-8"),
                os.sysconf("SC_CLK_TCK"),
            ),
            1,
        ),
        "noted": noted,
        "holder": holder,
        "run": run_of(told),
        "needed": any(Path(each).exists() for each in needed_by),
        "has_apt": Path("/usr/bin/apt-get").exists(),
    }


def main() -> None:
    module = AnsibleModule(
        {
            "note": {"type": "path", "required": True},
            "needed_by": {"type": "list", "elements": "path", "default": ["/run/reboot-required"]},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **look(module.params["note"], module.params["needed_by"]))
    except OSError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
