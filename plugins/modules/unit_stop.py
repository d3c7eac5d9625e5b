#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Stops a systemd unit for a while: systemd starts it again by itself, whatever becomes of the run that stopped it.

A run that is interrupted, or loses its connection, between a stop and the start would leave the unit down for nobody.
"""

from __future__ import annotations

DOCUMENTATION = """
module: unit_stop
short_description: Stop a unit for a while
description:
  - 'Stops a systemd unit for a while: systemd starts it again by itself, whatever becomes of the run
    that stopped it.'
  - A run that is interrupted, or loses its connection, between a stop and the start would leave the unit
    down for nobody.
author: The Landline authors (!UNKNOWN)
options:
  name:
    description: The unit.
    type: str
    required: true
  returns_after_s:
    description: Seconds until systemd starts it, unless it was started before.
    type: int
    default: 120
  state:
    description:
      - C(stopped) - stop it, for that long.
      - C(forgotten) - it was started; systemd need not start it any more.
    type: str
    choices: [stopped, forgotten]
    default: stopped
"""
EXAMPLES = """
- name: Stop the server
  landline.cluster.unit_stop:
    name: zookeeper.service
"""
RETURN = """
timer:
  description: The timer that starts it.
  type: str
  returned: always
"""

import subprocess

from ansible.module_utils.basic import AnsibleModule


def run(*argv: str, check: bool = True) -> None:
    """Runs a command; raises `subprocess.CalledProcessError`."""
    subprocess.run(argv, check=check, capture_output=True, text=True)


def timer_of(unit: str) -> str:
    """Returns the name of the timer, without its suffix."""
    return f"landline-return-{unit.removesuffix('.service')}"


def forget(unit: str) -> None:
    """Ends the timer, if there is one."""
    run("systemctl", "stop", f"{timer_of(unit)}.timer", check=False)


def stop(unit: str, returns_after_s: int) -> None:
    """Sets the timer, then stops the unit; an earlier run's timer ends."""
    forget(unit)
    run(
        *("systemd-run", "--quiet", "--collect", f"--unit={timer_of(unit)}"),
        *(f"--on-active={returns_after_s}", "--timer-property=AccuracySec=1s"),
        *("systemctl", "start", unit),
    )
    run("systemctl", "stop", unit)


def main() -> None:
    module = AnsibleModule(
        {
            "name": {"required": True},
            "returns_after_s": {"type": "int", "default": 120},
            "state": {"choices": ["stopped", "forgotten"], "default": "stopped"},
        }
    )
    unit, is_stop = module.params["name"], module.params["state"] == "stopped"
    try:
        if is_stop:
            stop(unit, module.params["returns_after_s"])
        else:
            forget(unit)
    except (subprocess.CalledProcessError, OSError) as error:
        module.fail_json(msg=f"{unit}: {getattr(error, 'stderr', '') or error}".strip())
    module.exit_json(changed=is_stop, timer=f"{timer_of(unit)}.timer")


if __name__ == "__main__":
    main()
