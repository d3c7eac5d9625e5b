#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Notes on a host how long the turns of its services took, for the next plan's estimate."""

from __future__ import annotations

DOCUMENTATION = """
module: unit_turns
short_description: Note how long turns took
description:
  - Notes on a host how long the turns of its services took, for the next plan's estimate.
author: The Landline authors (!UNKNOWN)
options:
  path:
    description: The file of notes.
    type: path
    required: true
  host_s:
    description: Seconds that the host's roll took, all in all.
    type: float
  units:
    description: Seconds of each unit's turn, which are a part of host_s.
    type: dict
    default: {}
  install_s:
    description: Seconds that the installation of a release took on the host.
    type: float
  rest_s:
    description: Seconds that the deploy took beside all hosts' rolls and installations. One host notes it.
    type: float
  look_s:
    description: Seconds that the looks of a plan took in the same run, by which those of other runs are scaled.
    type: float
"""
EXAMPLES = """
- name: Note how long it took
  landline.cluster.unit_turns:
    path: /opt/landline/turns.json
    host_s: 21.5
    units: {"landline-broker@1.service": 14.2}
"""
RETURN = """
changed:
  description: Always false. Notes are no part of the desired state.
  type: bool
  returned: always
"""

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

KEPT = 5


def noted(told: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the notes with these durations at their ends. What is no note is forgotten."""
    before = told if isinstance(told, dict) else {}
    found = before.get("units")
    units: dict[str, Any] = found if isinstance(found, dict) else {}
    turns = {unit: float(seconds) for unit, seconds in params["units"].items()}
    own_s = None if params["host_s"] is None else max(params["host_s"] - sum(turns.values()), 0.0)
    look_s = params["look_s"]
    return {
        "units": {**units, **{unit: _longer(units.get(unit), each, look_s) for unit, each in turns.items()}},
        "host": _longer(before.get("host"), own_s, look_s),
        # A machine's processor and disk, which no look measures.
        "install": _longer(before.get("install"), params["install_s"], None),
        "rest": _longer(before.get("rest"), params["rest_s"], look_s),
    }


def _longer(noted: Any, seconds: float | None, look_s: float | None) -> list[Any]:
    earlier = noted if isinstance(noted, list) else []
    return [*earlier, *([] if seconds is None else [[round(seconds, 2), look_s]])][-KEPT:]


def main() -> None:
    module = AnsibleModule(
        {
            "path": {"type": "path", "required": True},
            "host_s": {"type": "float"},
            "units": {"type": "dict", "default": {}},
            "install_s": {"type": "float"},
            "rest_s": {"type": "float"},
            "look_s": {"type": "float"},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    if not module.check_mode:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            told = None
        notes = json.dumps(noted(told, module.params))
        try:
            beside = path.with_suffix(".new")
            beside.write_text(f"{notes}\n", encoding="utf-8")
            beside.replace(path)
        except OSError as error:
            module.fail_json(msg=f"{path} cannot be written: {error}")
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
