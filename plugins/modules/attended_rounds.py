#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a long command in rounds. What it does is in the action plugin of this name, on the control node."""

from __future__ import annotations

DOCUMENTATION = """
module: attended_rounds
short_description: Run a long command in rounds, and show after each one how far it is
description:
  - The command gets C(--json) and C(--within). It ends with 0 when all is done, and with 75 when there is more to do.
  - If it has C(--holder), all rounds but the first get C(--held) as well.
  - A round that is running when the play ends is interrupted, as by C(attended_command).
author: The Landline authors (!UNKNOWN)
options:
  argv:
    description: The command and its arguments.
    type: list
    elements: str
    required: true
  round_s:
    description: Seconds of a round.
    type: float
    default: 15
  quiet_s:
    description: Seconds after which the task fails if no round brought anything nearer to the end.
    type: float
    default: 600
"""
EXAMPLES = """
- name: Move partitions
  landline.cluster.attended_rounds:
    argv: [landline, rebalance, /etc/landline/broker-1.properties]
"""
RETURN = """
plan:
  description: What the first round had before it, in numbers and in words (lines).
  type: dict
  returned: always
stays:
  description: What is as it was, and why, in words.
  type: list
  elements: str
  returned: always
took_s:
  description: Seconds that all rounds took.
  type: float
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        {
            "argv": {"type": "list", "elements": "str", "required": True},
            "round_s": {"type": "float", "default": 15.0},
            "quiet_s": {"type": "float", "default": 600.0},
        }
    )
    module.fail_json(msg="the action plugin attended_rounds is missing: set action_plugins in ansible.cfg")


if __name__ == "__main__":
    main()
