#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Has running brokers take up their changed properties files, and waits until they go by them."""

from __future__ import annotations

DOCUMENTATION = """
module: broker_reload
short_description: Reload brokers' properties files
description:
  - Has running brokers take up their changed properties files, and waits until they go by them.
author: The Landline authors (!UNKNOWN)
options:
  brokers:
    description: The brokers, each with unit, url and config.
    type: list
    elements: dict
    required: true
  timeout_s:
    description: Seconds until a broker must go by its file. It may have to wait for ZooKeeper.
    type: float
    default: 60
  ca_file:
    description: PEM file on the host with the CA of the brokers' HTTP ports. It may be missing.
    type: path
  token_file:
    description: File on the host whose first line is the token of the HTTP ports. It may be missing.
    type: path
"""
EXAMPLES = """
- name: Take up changed settings
  landline.cluster.broker_reload:
    brokers: "{{ broker_all }}"
"""
RETURN = """
units:
  description: What was reloaded.
  type: list
  returned: success
"""

import subprocess
import time
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.broker_http import ask, first_line
from ansible_collections.landline.cluster.plugins.module_utils.broker_status import (
    loaded_version,
    status_in,
    version_of,
)

PAUSE_S = 0.2


def outcome(status: Mapping[str, Any] | None, wanted: str) -> tuple[bool, str | None]:
    """Returns whether the broker has done with the file of this version, and what is wrong then."""
    file = (status or {}).get("config_file") or {}
    refused = file.get("refused") or {}
    if refused.get("version") == wanted:
        return True, f"it refuses the file and goes on as before: {refused.get('reason')}"
    if loaded_version(status) != wanted:
        return False, "it does not say that it goes by its file"
    waiting = file.get("needs_restart") or []
    return True, f"it needs a restart for {', '.join(waiting)}" if waiting else None


def reload(
    broker: Mapping[str, Any], timeout_s: float, ca_file: str | None = None, token: str = ""
) -> str | None:
    """Reloads a broker; returns what is wrong."""
    wanted, deadline = version_of(broker["config"]), time.monotonic() + timeout_s
    if wanted is None:
        return f"{broker['config']} cannot be read"
    subprocess.run(["systemctl", "reload", broker["unit"]], check=True, capture_output=True, text=True)
    while True:
        answer = ask(broker, "/status", PAUSE_S * 10, ca_file, token)
        done, wrong = outcome(status_in(answer.code, answer.body), wanted)
        if done or time.monotonic() >= deadline:
            return wrong
        time.sleep(PAUSE_S)


def main() -> None:
    module = AnsibleModule(
        {
            "brokers": {"type": "list", "elements": "dict", "required": True},
            "timeout_s": {"type": "float", "default": 60.0},
            "ca_file": {"type": "path"},
            "token_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    brokers = module.params["brokers"]
    token = first_line(module.params["token_file"])
    for broker in [] if module.check_mode else brokers:
        try:
            wrong = reload(broker, module.params["timeout_s"], module.params["ca_file"], token)
        except subprocess.CalledProcessError as error:
            wrong = f"systemctl reload: {error.stderr.strip()}"
        if wrong is not None:
            module.fail_json(msg=f"{broker['unit']}: {wrong}")
    module.exit_json(changed=bool(brokers), units=[broker["unit"] for broker in brokers])


if __name__ == "__main__":
    main()
