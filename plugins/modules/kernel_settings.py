#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Sets kernel settings now and at boot, and puts back what was there before for those that are no longer wanted."""

from __future__ import annotations

DOCUMENTATION = """
module: kernel_settings
short_description: Kernel settings, with the way back
description:
  - A setting that the host does not have, or that it may not set because it is a container, is skipped.
author: The Landline authors (!UNKNOWN)
options:
  settings:
    description: Values by key, as in sysctl.conf.
    type: dict
    required: true
  path:
    description: File in /etc/sysctl.d. It also has, as comments, the values from before.
    type: path
    required: true
  proc:
    description: Where the kernel has them.
    type: path
    default: /proc/sys
"""
EXAMPLES = """
- name: Set kernel settings
  landline.cluster.kernel_settings:
    path: /etc/sysctl.d/60-landline.conf
    settings:
      vm.swappiness: 1
"""
RETURN = """
set:
  description: Keys that got another value.
  type: list
  returned: always
put_back:
  description: Keys that got the value from before.
  type: list
  returned: always
skipped:
  description: Keys that this host does not have or may not set.
  type: list
  returned: always
"""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ansible.module_utils.basic import AnsibleModule

HEAD = "# Ansible managed. A line '# KEY was VALUE' is what is put back when the key is no longer set.\n"
_WAS = re.compile(r"# (\S+) was ?(.*)")


class Plan(NamedTuple):
    """The file's new text, and what to write into the kernel, by key."""

    text: str
    to_set: dict[str, str]
    to_put_back: dict[str, str]


def before_in(text: str) -> dict[str, str]:
    """Returns the values from before that a file tells of; empty where they are not known."""
    return {match[1]: match[2] for match in filter(None, map(_WAS.fullmatch, text.splitlines()))}


def keys_in(text: str) -> set[str]:
    """Returns the keys that a file sets."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip() for key, _unused, _unused in lines}


def plan(wanted: Mapping[str, str], text: str, current: Mapping[str, str]) -> Plan:
    """Returns what is to be done. `text` is the file's, `current` has the kernel's values by key."""
    known = before_in(text)
    # A file of an earlier release does not tell what was there before.
    before = dict.fromkeys(keys_in(text), "") | {key: current[key] for key in wanted if key in current}
    before |= dict.fromkeys(keys_in(text) & wanted.keys(), "") | known
    kept = {key: before[key] for key in sorted(wanted) if key in before}
    lines = [f"# {key} was {value}".rstrip() + "\n" for key, value in kept.items()]
    lines += [f"{key} = {value}\n" for key, value in sorted(wanted.items())]
    gone = {key: value for key, value in before.items() if key not in wanted and value}
    return Plan(
        HEAD + "".join(lines),
        {key: value for key, value in wanted.items() if key in current and current[key] != value},
        {key: value for key, value in gone.items() if current.get(key, value) != value},
    )


def place_of(proc: Path, key: str) -> Path:
    """Returns the file of a key; a dot in a name is a slash, as sysctl has it."""
    return proc.joinpath(*(part.replace("/", ".") for part in key.split(".")))


def value_of(path: Path) -> str | None:
    """Returns the kernel's value with single blanks, None if it has no such setting."""
    try:
        return " ".join(path.read_text().split())
    except OSError:
        return None


def put(values: Mapping[str, str], proc: Path) -> tuple[list[str], list[str]]:
    """Writes values into the kernel; returns the keys that were set and those that this host may not set."""
    done, refused = [], []
    for key, value in values.items():
        try:
            place_of(proc, key).write_text(f"{value}\n")
            done.append(key)
        except PermissionError:
            refused.append(key)
        except OSError as error:
            if error.errno is None or "Read-only" not in str(error.strerror):
                raise
            refused.append(key)
    return done, refused


def write(path: Path, text: str) -> None:
    """Replaces the file whole: on a full disk, what was there before a key was set would be lost with it."""
    made = path.with_name(f"{path.name}.made")
    try:
        made.write_text(text)
        made.chmod(0o644)
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def main() -> None:
    module = AnsibleModule(
        {
            "settings": {"type": "dict", "required": True},
            "path": {"type": "path", "required": True},
            "proc": {"type": "path", "default": "/proc/sys"},
        },
        supports_check_mode=True,
    )
    path, proc = Path(module.params["path"]), Path(module.params["proc"])
    wanted = {str(key): " ".join(str(value).split()) for key, value in module.params["settings"].items()}
    text = path.read_text() if path.exists() else ""
    looked = {key: value_of(place_of(proc, key)) for key in wanted.keys() | before_in(text).keys()}
    current = {key: value for key, value in looked.items() if value is not None}
    # A container's are on a read-only file system. In a dry run they are no change either.
    fixed = [key for key in current if not os.access(place_of(proc, key), os.W_OK)]
    todo = plan(wanted, text, current)
    for each in (todo.to_set, todo.to_put_back):
        for key in fixed:
            each.pop(key, None)
    done: list[str] = list(todo.to_set)
    back: list[str] = list(todo.to_put_back)
    refused: list[str] = []
    if not module.check_mode:
        try:
            if todo.text != text:
                write(path, todo.text)
            done, refused = put(todo.to_set, proc)
            back, more = put(todo.to_put_back, proc)
        except OSError as error:
            doubt = ": is the value in common_sysctl valid?" if error.errno == errno.EINVAL else ""
            module.fail_json(msg=f"{error.filename}: {error.strerror}{doubt}")
        refused += more
    module.exit_json(
        changed=todo.text != text or bool(done) or bool(back),
        set=done,
        put_back=back,
        skipped=sorted({*refused, *(key for key in wanted if key not in current or key in fixed)}),
        diff={"before": text, "after": todo.text, "before_header": str(path), "after_header": str(path)},
    )


if __name__ == "__main__":
    main()
