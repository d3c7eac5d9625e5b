#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Restarts a systemd unit by a single systemd job, and waits until the new process has started.

systemd has the whole restart job before anything happens, so a lost connection to the host leaves nothing
stopped. Other modules check whether the new process serves.
"""

from __future__ import annotations

DOCUMENTATION = """
module: unit_restart
short_description: Restart a unit, wait for its next process
description:
  - Restarts a systemd unit by a single systemd job, and waits until the new process has started.
  - systemd has the whole restart job before anything happens, so a lost connection to the host leaves
    nothing stopped. Other modules check whether the new process serves.
author: The Landline authors (!UNKNOWN)
options:
  name:
    description: The unit.
    type: str
    required: true
  timeout_s:
    description: Seconds its stop may take.
    type: float
    default: 150
"""
EXAMPLES = """
- name: Restart the broker
  landline.cluster.unit_restart:
    name: landline-broker@3.service
"""
RETURN = """
took_s:
  description: Seconds until the next process had begun.
  type: float
  returned: success
"""

import subprocess
import time

from ansible.module_utils.basic import AnsibleModule


def systemctl(*arguments: str) -> str:
    """Returns the command's output; raises `subprocess.CalledProcessError`."""
    return subprocess.run(
        ["systemctl", *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def invocation(unit: str) -> str:
    """Returns systemd's id of the unit's current run; each start gets a new one."""
    return systemctl("show", "--property=InvocationID", "--value", unit)


def restart(unit: str, timeout_s: float) -> str | None:
    """Returns the error, or None when a new run has started."""
    before = invocation(unit)
    systemctl("enable", "--quiet", unit)
    systemctl("restart", "--no-block", unit)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        now = invocation(unit)
        if now and now != before:
            return None
        time.sleep(0.1)
    return f"{unit} has not stopped within {timeout_s:g} s of being told to"


def main() -> None:
    module = AnsibleModule(
        {"name": {"required": True}, "timeout_s": {"type": "float", "default": 150.0}},
        supports_check_mode=False,
    )
    began = time.monotonic()
    try:
        wrong = restart(module.params["name"], module.params["timeout_s"])
    except subprocess.CalledProcessError as error:
        wrong = f"systemctl: {error.stderr.strip()}"
    if wrong is not None:
        module.fail_json(msg=wrong)
    module.exit_json(changed=True, took_s=round(time.monotonic() - began, 3))


if __name__ == "__main__":
    main()
