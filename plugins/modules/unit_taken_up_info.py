#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Finds files that a running service reads when it starts, and that were written since it did.

A run that ends between the writing of a file and the restart leaves them: to the next run the file is as it should be.
"""

from __future__ import annotations

DOCUMENTATION = """
module: unit_taken_up_info
short_description: Files that a running service has not read yet
description:
  - Finds files that a running service reads when it starts, and that were written since it did.
  - 'A run that ends between the writing of a file and the restart leaves them: to the next run the file is as it
    should be.'
author: The Landline authors (!UNKNOWN)
options:
  unit:
    description: The service.
    type: str
    required: true
  files:
    description: What it reads. A file that is missing is none of them.
    type: list
    elements: path
    required: true
  by_reload:
    description: Whether it reads them at a reload too.
    type: bool
    default: false
"""
EXAMPLES = """
- name: Look what an earlier run left
  landline.cluster.unit_taken_up_info:
    unit: prometheus.service
    files: [/etc/default/prometheus]
"""
RETURN = """
left:
  description: The files that were written since; none while the service does not run.
  type: list
  returned: always
"""

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

STARTED = "ActiveEnterTimestampMonotonic"
CHANGED = "StateChangeTimestampMonotonic"
US = 1_000_000


def taken_up_at(unit: str, by_reload: bool) -> float | None:
    """Returns the time, in seconds since the epoch, at which a service has read its files; None if it does not run.

    systemd's clock never jumps, and files have the time of day: it is worked out by what the time of day is now.
    """
    told = CHANGED if by_reload else STARTED
    argv = ["systemctl", "show", f"--property=ActiveState,{told}", unit]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    shown = dict(line.partition("=")[::2] for line in lines)
    if shown.get("ActiveState") != "active":
        return None
    return time.time() - time.monotonic() + int(shown[told]) / US


def left_since(files: Iterable[str], since: float) -> list[str]:
    """Returns those of the files that were written after a time."""
    return [file for file in files if Path(file).is_file() and Path(file).stat().st_mtime > since]


def main() -> None:
    module = AnsibleModule(
        {
            "unit": {"required": True},
            "files": {"type": "list", "elements": "path", "required": True},
            "by_reload": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        since = taken_up_at(params["unit"], params["by_reload"])
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"systemctl show: {error.stderr.strip()}")
    module.exit_json(changed=False, left=[] if since is None else left_since(params["files"], since))


if __name__ == "__main__":
    main()
