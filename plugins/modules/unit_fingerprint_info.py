#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reports whether systemd units run, and whether with the wanted release and configuration."""

from __future__ import annotations

DOCUMENTATION = """
module: unit_fingerprint_info
short_description: State of systemd units by the fingerprint their main processes were started with
description:
  - Reports whether systemd units run, and whether with the wanted release and configuration.
author: The Landline authors (!UNKNOWN)
options:
  units:
    description: Unit names, each with the fingerprint it should run with.
    type: dict
    required: true
"""
EXAMPLES = """
- name: Look how the server runs
  landline.cluster.unit_fingerprint_info:
    units: {"zookeeper.service": "d1c5"}
"""
RETURN = """
states:
  description: stopped, current or changed, by unit name.
  type: dict
  returned: always
"""

import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.unit_state import state_of


def main() -> None:
    module = AnsibleModule({"units": {"type": "dict", "required": True}}, supports_check_mode=True)
    try:
        states = {unit: state_of(unit, wanted) for unit, wanted in module.params["units"].items()}
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"systemctl show: {error.stderr.strip()}")
    module.exit_json(changed=False, states=states)


if __name__ == "__main__":
    main()
