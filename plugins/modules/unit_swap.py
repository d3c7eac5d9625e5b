#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Lets one systemd unit take the place of another on the same data: stops it, hands the directories over, starts
the other.

All of it happens in one process on the host, which goes on if nobody waits for it any more. If the other unit does
not start, the first one gets its directories back and is started again.
"""

from __future__ import annotations

DOCUMENTATION = """
module: unit_swap
short_description: Let a unit take another one's place on the same directories
description:
  - 'Lets one systemd unit take the place of another on the same data: stops it, hands the directories
    over, starts the other.'
  - All of it happens in one process on the host, which goes on if nobody waits for it any more. If the
    other unit does not start, the first one gets its directories back and is started again.
author: The Landline authors (!UNKNOWN)
options:
  stop:
    description: The unit that leaves. It is stopped, and does not start at boot any more.
    type: str
    required: true
  start:
    description: The unit that takes its place. It is started, also at boot.
    type: str
    required: true
  dirs:
    description: The directories that change hands.
    type: list
    elements: path
    required: true
  owner:
    description: Their new owner and group, and those that they get back if the unit does not start.
    type: dict
    required: true
    suboptions:
      user:
        description: The new owner.
        type: str
        required: true
      group:
        description: The new group.
        type: str
        required: true
      before_user:
        description: The owner until now.
        type: str
        required: true
      before_group:
        description: The group until now.
        type: str
        required: true
  clean_mark:
    description: File in each directory that says that the unit has stopped in good order.
    type: str
    default: .kafka_cleanshutdown
  timeout_s:
    description: Seconds that the start may take.
    type: float
    default: 600
"""
EXAMPLES = """
- name: Hand over
  landline.cluster.unit_swap:
    stop: kafka.service
    start: landline-broker@1.service
    dirs: [/var/lib/kafka]
    owner: {user: landline, group: landline, before_user: kafka, before_group: kafka}
"""
RETURN = """
clean:
  description: Whether the unit that left has stopped in good order.
  type: bool
  returned: success
down_s:
  description: Seconds from the stop's begin until the other unit had started.
  type: float
  returned: success
"""

import grp
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule


class SwapError(Exception):
    """A step failed; the message says which, and what runs now."""


def systemctl(*arguments: str, timeout_s: float | None = None) -> str:
    """Returns the command's output. Raises `SwapError`."""
    try:
        done = subprocess.run(
            ["systemctl", *arguments], capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise SwapError(f"systemctl {' '.join(arguments)}: not done after {timeout_s:g} s") from None
    if done.returncode:
        raise SwapError(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def is_so(stop: str, start: str) -> bool:
    """Returns whether the unit has been swapped for the other one."""
    words = {
        unit: systemctl("show", "--property=ActiveState,UnitFileState", "--value", unit).split("\n")
        for unit in (stop, start)
    }
    runs = words[start][0] == "active" and words[stop][0] in {"inactive", "failed"}
    return runs and words[start][1] == "enabled" and words[stop][1] != "enabled"


def paths_in(dirs: Iterable[str]) -> Iterator[str]:
    """Yields the directories and everything in them. A directory may be a link; links in it are not followed."""
    for top in map(os.path.realpath, dirs):
        yield top
        for at, names, files in os.walk(top):
            yield from (f"{at}/{name}" for name in (*names, *files))


def hand_over(dirs: Iterable[str], user: str, group: str) -> None:
    """Gives the directories to the user. Raises `SwapError`."""
    try:
        uid, gid = pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
        for path in paths_in(dirs):
            os.lchown(path, uid, gid)
    except (OSError, KeyError) as error:
        raise SwapError(f"the directories cannot be given to {user}:{group}: {error}") from error


def swap(params: dict[str, Any]) -> dict[str, Any]:
    """Returns everything that RETURN describes. Raises `SwapError`, after the first unit runs again."""
    stop, start, dirs, owner = params["stop"], params["start"], params["dirs"], params["owner"]
    began = time.monotonic()
    try:
        systemctl("stop", stop)
        clean = all(Path(each, params["clean_mark"]).exists() for each in dirs)
        hand_over(dirs, owner["user"], owner["group"])
        # A host that goes off in between has one that starts at boot.
        systemctl("enable", "--quiet", start)
        systemctl("disable", "--quiet", stop)
        systemctl("start", start, timeout_s=params["timeout_s"])
    except SwapError as error:
        raise SwapError(f"{error}. {put_back(params)}") from error
    return {"clean": clean, "down_s": round(time.monotonic() - began, 2)}


def put_back(params: dict[str, Any]) -> str:
    """Brings the first unit back as it was; it is started whatever else fails. Returns in words whether that worked."""
    stop, start, owner = params["stop"], params["start"], params["owner"]
    steps: tuple[Callable[[], object], ...] = (
        lambda: systemctl("stop", start),
        lambda: systemctl("enable", "--quiet", stop),
        lambda: systemctl("disable", "--quiet", start),
        lambda: hand_over(params["dirs"], owner["before_user"], owner["before_group"]),
    )
    wrong = []
    for step in steps:
        try:
            step()
        except SwapError as error:
            wrong.append(str(error))
    with suppress(SwapError):  # a unit that has not failed may not be loaded
        systemctl("reset-failed", stop)
    try:
        systemctl("start", stop)
    except SwapError as error:
        return f"{stop} could not be started again either: {'; '.join([*wrong, str(error)])}"
    return "; ".join([f"{stop} was started again", *wrong])


def main() -> None:
    module = AnsibleModule(
        {
            "stop": {"required": True},
            "start": {"required": True},
            "dirs": {"type": "list", "elements": "path", "required": True},
            "owner": {
                "type": "dict",
                "required": True,
                "options": {
                    name: {"required": True} for name in ("user", "group", "before_user", "before_group")
                },
            },
            "clean_mark": {"default": ".kafka_cleanshutdown"},
            "timeout_s": {"type": "float", "default": 600.0},
        },
        supports_check_mode=True,
    )
    # A connection that is cut off, and ^C, leave no broker down.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        if is_so(module.params["stop"], module.params["start"]):
            module.exit_json(changed=False, clean=True, down_s=0.0)
        if module.check_mode:
            module.exit_json(changed=True, clean=True, down_s=0.0)
        module.exit_json(changed=True, **swap(module.params))
    except SwapError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
