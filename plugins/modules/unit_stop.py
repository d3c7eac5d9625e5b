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
  - A unit that is down already, and that systemd is not to start, is left alone. One that an earlier call has stopped
    stays down for the whole time from now on.
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
changed:
  description: Whether it ran.
  type: bool
  returned: always
timer:
  description: The timer that starts it.
  type: str
  returned: always
"""

import re
import signal
import subprocess

from ansible.module_utils.basic import AnsibleModule


def run(*argv: str, check: bool = True) -> str:
    """Returns what a command says; raises `subprocess.CalledProcessError`."""
    return subprocess.run(argv, check=check, capture_output=True, text=True).stdout.strip()


def timer_of(unit: str) -> str:
    """Returns the name of the timer, without its suffix."""
    return f"landline-return-{re.sub('[^a-zA-Z0-9_.-]', '-', unit.removesuffix('.service'))}"


def runs(unit: str) -> bool:
    """Returns whether a unit runs, is about to, or waits for its next start."""
    shown = run("systemctl", "show", "--property=ActiveState", "--value", unit)
    return shown not in {"inactive", "failed", ""}


def forget(unit: str) -> None:
    """Ends the timer, if there is one, and what it has begun."""
    timer = timer_of(unit)
    run("systemctl", "stop", f"{timer}.timer", f"{timer}.service", check=False)


def stop(unit: str, returns_after_s: int) -> bool:
    """Sets the timer, then stops the unit; an earlier call's timer ends. Returns whether the unit ran."""
    has_run = runs(unit)
    if not has_run and not runs(f"{timer_of(unit)}.timer"):
        return False
    forget(unit)
    # A broker's start may wait for ZooKeeper without end: nothing waits for it.
    run(
        *("systemd-run", "--quiet", "--collect", f"--unit={timer_of(unit)}"),
        *(f"--on-active={returns_after_s}", "--timer-property=AccuracySec=1s"),
        *("systemctl", "--no-block", "start", unit),
    )
    run("systemctl", "stop", unit)
    return has_run


def main() -> None:
    module = AnsibleModule(
        {
            "name": {"required": True},
            "returns_after_s": {"type": "int", "default": 120},
            "state": {"choices": ["stopped", "forgotten"], "default": "stopped"},
        },
        supports_check_mode=True,
    )
    # A connection that is cut off, and ^C, do not end this between a timer and the next one.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    unit, is_stop, changed = module.params["name"], module.params["state"] == "stopped", False
    try:
        if is_stop:
            changed = runs(unit) if module.check_mode else stop(unit, module.params["returns_after_s"])
        elif not module.check_mode:
            forget(unit)
    except (subprocess.CalledProcessError, OSError) as error:
        module.fail_json(msg=f"{unit}: {getattr(error, 'stderr', '') or error}".strip())
    module.exit_json(changed=changed, timer=f"{timer_of(unit)}.timer")


if __name__ == "__main__":
    main()
