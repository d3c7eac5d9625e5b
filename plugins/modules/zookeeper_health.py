#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Waits until a ZooKeeper server answers ruok, or serves as part of its ensemble, and reports its mode."""

from __future__ import annotations

DOCUMENTATION = """
module: zookeeper_health
short_description: Wait for a ZooKeeper server by its four-letter commands
description:
  - Waits until a ZooKeeper server answers ruok, or serves as part of its ensemble, and reports its mode.
author: The Landline authors (!UNKNOWN)
options:
  host:
    description: Address its client port listens on.
    type: str
    default: 127.0.0.1
  port:
    description: Its client port.
    type: int
    default: 2181
  until:
    description:
      - C(alive) - it answers ruok, whether or not the ensemble has a quorum.
      - C(serving) - it is leader, follower, observer or standalone.
    type: str
    choices: [alive, serving]
    default: alive
  retries:
    description: How often to ask before giving up.
    type: int
    default: 60
  delay:
    description: Seconds between two attempts.
    type: float
    default: 0.5
"""
EXAMPLES = """
- name: Wait for the server
  landline.cluster.zookeeper_health:
    until: serving
"""
RETURN = """
mode:
  description: leader, follower, observer or standalone; empty while it has no quorum.
  type: str
  returned: success
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.addresses import host_port
from ansible_collections.landline.cluster.plugins.module_utils.zookeeper_words import (
    four_letter_word,
    mode_in,
    reachable,
)


def main() -> None:
    module = AnsibleModule(
        {
            "host": {"default": "127.0.0.1"},
            "port": {"type": "int", "default": 2181},
            "until": {"choices": ["alive", "serving"], "default": "alive"},
            "retries": {"type": "int", "default": 60},
            "delay": {"type": "float", "default": 0.5},
        },
        supports_check_mode=True,
    )
    params = {**module.params, "host": reachable(module.params["host"])}
    for attempt in range(params["retries"]):
        alive = four_letter_word(params["host"], params["port"], "ruok") == "imok"
        mode = mode_in(four_letter_word(params["host"], params["port"], "srvr")) if alive else ""
        if mode or (alive and params["until"] == "alive"):
            module.exit_json(changed=False, mode=mode)
        if attempt + 1 < params["retries"]:
            time.sleep(params["delay"])
    state = "answers ruok but has no quorum" if alive else "does not answer ruok"
    server = host_port(params["host"], params["port"])
    module.fail_json(msg=f"ZooKeeper on {server} {state} (is ruok in 4lw.commands.whitelist?)")


if __name__ == "__main__":
    main()
