#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a directory for what a run has for a while and nobody else may read, and removes it."""

from __future__ import annotations

DOCUMENTATION = """
module: work_dir
short_description: Make a directory for a run's secrets, and remove it
description:
  - Makes a directory for what a run has for a while and nobody else may read, and removes it.
  - ^C, or a lost connection, ends a run before it can remove it. So all of these directories are in one, and who makes
    a new one removes those there that are older than a run takes.
author: The Landline authors (!UNKNOWN)
options:
  state:
    description:
      - C(present) - make one.
      - C(absent) - remove the one at O(path), and the directory above it if nothing else is in it.
    type: str
    choices: [present, absent]
    default: present
  parent:
    description: The directory that it is made in. It has to be of the user who runs this, and is made if it is missing.
    type: path
  path:
    description: The one to remove.
    type: path
  owner:
    description: Who alone can read it; by default who runs this.
    type: str
    default: ""
  group:
    description: Its group.
    type: str
    default: ""
  left_s:
    description: Seconds from which one that is there was left by a run that has ended.
    type: float
    default: 3600
"""
EXAMPLES = """
- name: Make a place for the tree
  landline.cluster.work_dir:
    parent: /var/lib/landline-work
    owner: landline
  register: place

- name: Remove it
  landline.cluster.work_dir:
    state: absent
    path: "{{ place.path }}"
"""
RETURN = """
path:
  description: The directory.
  type: str
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.work_dirs import WorkDirError, made, removed


def main() -> None:
    module = AnsibleModule(
        {
            "state": {"choices": ["present", "absent"], "default": "present"},
            "parent": {"type": "path"},
            "path": {"type": "path"},
            "owner": {"default": ""},
            "group": {"default": ""},
            "left_s": {"type": "float", "default": 3600.0},
        },
        required_if=[("state", "present", ("parent",)), ("state", "absent", ("path",))],
    )
    params = module.params
    try:
        if params["state"] == "absent":
            changed = removed(Path(params["path"]))
            module.exit_json(changed=changed, path=params["path"])
        path = made(Path(params["parent"]), params["owner"], params["group"], params["left_s"])
        module.exit_json(changed=True, path=str(path))
    except (WorkDirError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
