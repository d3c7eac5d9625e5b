#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Gives a host's turn to one run at a time, for a limited time: a run that dies holds it no longer than that."""

from __future__ import annotations

DOCUMENTATION = """
module: host_lease
short_description: One run at a time on a host
description:
  - 'Gives a host''s turn to one run at a time, for a limited time: a run that dies holds it no longer
    than that.'
author: The Landline authors (!UNKNOWN)
options:
  name:
    description: What the turn is for.
    type: str
    required: true
  holder:
    description: Who wants it. The holder itself gets it again, for as long as it asks for.
    type: str
    required: true
  for_s:
    description: Seconds after which it is over, unless the holder asks again.
    type: float
    default: 180
  within_s:
    description: Seconds to wait for another holder.
    type: float
    default: 0
  state:
    description: C(held) or C(released).
    type: str
    choices: [held, released]
    default: held
  directory:
    description: Where it is noted; empty after a boot.
    type: path
    default: /run
"""
EXAMPLES = """
- name: Take the turn
  landline.cluster.host_lease:
    name: zookeeper
    holder: alice@control (run 7f3a)
    within_s: 200
"""
RETURN = """
holder:
  description: Who has it now; empty for nobody.
  type: str
  returned: always
left_s:
  description: For how many seconds.
  type: float
  returned: always
"""

import fcntl
import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

PAUSE_S = 0.5


def decide(noted: dict[str, Any], holder: str, now: float, for_s: float) -> dict[str, Any]:
    """Returns what is noted from now on. `for_s` of 0 gives it back."""
    other = noted.get("holder", "") not in {"", holder} and float(noted.get("until", 0)) > now
    if other:
        return noted
    return {"holder": holder, "until": now + for_s} if for_s else {}


def ask(path: Path, holder: str, for_s: float) -> dict[str, Any]:
    """Asks once; returns what is noted. The clock is the one of the boot, which nobody sets."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        try:
            noted = json.loads(file.read() or "{}")
        except ValueError:
            noted = {}
        found = decide(noted, holder, time.clock_gettime(time.CLOCK_BOOTTIME), for_s)
        file.truncate(0)
        file.write(json.dumps(found))
        return found


def main() -> None:
    module = AnsibleModule(
        {
            "name": {"required": True},
            "holder": {"required": True},
            "for_s": {"type": "float", "default": 180.0},
            "within_s": {"type": "float", "default": 0.0},
            "state": {"choices": ["held", "released"], "default": "held"},
            "directory": {"type": "path", "default": "/run"},
        }
    )
    params = module.params
    path = Path(params["directory"], f"landline-turn-{params['name']}.json")
    for_s = params["for_s"] if params["state"] == "held" else 0.0
    deadline = time.monotonic() + params["within_s"]
    try:
        noted = ask(path, params["holder"], for_s)
        while for_s and noted["holder"] != params["holder"] and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            noted = ask(path, params["holder"], for_s)
    except OSError as error:
        module.fail_json(msg=f"{path}: {error.strerror}")
    left = max(float(noted.get("until", 0)) - time.clock_gettime(time.CLOCK_BOOTTIME), 0.0)
    if for_s and noted["holder"] != params["holder"]:
        module.fail_json(
            msg=f"{noted['holder']} is changing this host's {params['name']}, and has {left:.0f} s for its next step. "
            "Nothing was touched: run this again when that run is over",
            holder=noted["holder"],
            left_s=round(left, 1),
        )
    module.exit_json(changed=False, holder=noted.get("holder", ""), left_s=round(left, 1))


if __name__ == "__main__":
    main()
