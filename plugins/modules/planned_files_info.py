#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Compares what a deploy would write on a host with what is there, and how a service runs. Changes nothing."""

from __future__ import annotations

DOCUMENTATION = """
module: planned_files_info
short_description: What a deploy would write on a host, and what is there
description:
  - Compares what a deploy would write on a host with what is there, and how a service runs. Changes
    nothing.
author: The Landline authors (!UNKNOWN)
options:
  unit:
    description: The service's systemd unit.
    type: str
    required: true
  fingerprint:
    description: What it is to run with.
    type: str
    required: true
  files:
    description: What would be written.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: The file.
        type: path
        required: true
      content:
        description: What it is to have. Ansible shows no more of it than the lines that change.
        type: str
        required: true
      secret:
        description: Whether no value in it is to be shown.
        type: bool
        default: false
  salt:
    description: Salt of the digests. Those of two looks can be compared if both have the same.
    type: str
    required: true
  turns:
    description: File with the durations of earlier turns of this host, as unit_turns writes it. It may be missing.
    type: path
  url:
    description: HTTP address of the broker, which is asked for the duration of its last start. Empty for none.
    type: str
    default: ""
  ca_file:
    description: PEM file on the host with the CA of the HTTP port. It may be missing.
    type: path
  token_file:
    description: File on the host whose first line is the token of the HTTP port. It may be missing.
    type: path
"""
EXAMPLES = """
- name: Compare
  landline.cluster.planned_files_info:
    unit: landline-broker@1.service
    fingerprint: ab12
    salt: "0123456789abcdef"
    files:
      - {path: /etc/landline/broker-1.properties, content: "broker.id=1\\n"}
"""
RETURN = """
diff:
  description: Lines that would be written (+) and taken away (-), by file, with secrets masked.
  type: list
  returned: always
wanted:
  description: Digests of what the inventory wants, by file; running is what the process is to run with.
  type: dict
  returned: always
found:
  description: Digests of what is there; empty for what is missing.
  type: dict
  returned: always
is_new:
  description: Whether none of the files is there.
  type: bool
  returned: always
start_s:
  description: Seconds that the running process took for its start; null if it does not say.
  type: float
  returned: always
turns_s:
  description: Seconds that the last turns of this unit took, the newest last, each with those of that run's looks.
  type: list
  returned: always
host_s:
  description: The same of the host's rolls beside these turns.
  type: list
  returned: always
install_s:
  description: The same of installations of a release on the host, which no look is noted with.
  type: list
  returned: always
rest_s:
  description: The same of deploys beside rolls, if this host notes it.
  type: list
  returned: always
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.broker_http import ask, first_line
from ansible_collections.landline.cluster.plugins.module_utils.broker_status import status_in
from ansible_collections.landline.cluster.plugins.module_utils.planned_files import diff_of, digest_of
from ansible_collections.landline.cluster.plugins.module_utils.unit_state import fingerprint_of, show


def content_of(path: str) -> str | None:
    """Returns what a file has; None without one. Raises OSError."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def durations(path: str | None, unit: str) -> dict[str, list[list[float | None]]]:
    """Returns the durations that unit_turns noted, each with that of the looks of its run. Other content has none."""
    try:
        told = json.loads(Path(path or "").read_text(encoding="utf-8"))
        turns = told.get("units", {}).get(unit, [])
        found = {"turns_s": turns, **{f"{key}_s": told.get(key, []) for key in ("host", "install", "rest")}}
        return {
            key: [[float(took), look_s and float(look_s)] for took, look_s in values]
            for key, values in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {"turns_s": [], "host_s": [], "install_s": [], "rest_s": []}


def start_of(params: dict[str, Any]) -> float | None:
    """Returns how long the running broker's start took, in seconds."""
    if not params["url"]:
        return None
    answer = ask({"url": params["url"]}, "/status", 3, params["ca_file"], first_line(params["token_file"]))
    took = (status_in(answer.code, answer.body) or {}).get("startup_ms")
    return None if took is None else round(float(took) / 1000, 3)


def look(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the module's result."""
    salt, files = params["salt"], params["files"]
    before = {file["path"]: content_of(file["path"]) for file in files}
    shown = show(params["unit"])
    is_running = shown["ActiveState"] in {"active", "activating", "reloading"}
    running = fingerprint_of(int(shown["MainPID"])) if is_running else None
    return {
        "diff": [
            line
            for file in files
            for line in diff_of(file["path"], before[file["path"]], file["content"], secret=file["secret"])
        ],
        "wanted": {
            **{file["path"]: digest_of(file["content"], salt) for file in files},
            "running": digest_of(params["fingerprint"], salt),
        },
        "found": {
            **{path: "" if text is None else digest_of(text, salt) for path, text in before.items()},
            "running": "" if running is None else digest_of(running, salt),
        },
        "is_new": all(text is None for text in before.values()),
        "start_s": start_of(params) if is_running else None,
        **durations(params["turns"], params["unit"]),
    }


def main() -> None:
    module = AnsibleModule(
        {
            "unit": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "required": True, "no_log": True},
                    "secret": {"type": "bool", "default": False},
                },
            },
            "salt": {"type": "str", "required": True},
            "turns": {"type": "path"},
            "url": {"type": "str", "default": ""},
            "ca_file": {"type": "path"},
            "token_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **look(module.params))
    except (OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"{module.params['unit']}: {error}")


if __name__ == "__main__":
    main()
