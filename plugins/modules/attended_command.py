#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a command only as long as the caller waits for its result.

ansible.builtin.command keeps running when its play was killed: a command that waits for its turn would get
the turn for nobody.
"""

from __future__ import annotations

DOCUMENTATION = """
module: attended_command
short_description: Run a command that ends when nobody waits for it any more
description:
  - Runs a command only as long as the caller waits for its result.
  - 'ansible.builtin.command keeps running when its play was killed: a command that waits for its turn
    would get the turn for nobody.'
author: The Landline authors (!UNKNOWN)
options:
  argv:
    description: The command and its arguments.
    type: list
    elements: str
    required: true
  stdin:
    description: What it reads. No output of Ansible shows it.
    type: str
    default: ""
"""
EXAMPLES = """
- name: Wait for a turn
  landline.cluster.attended_command:
    argv: [landline, may-stop, /etc/landline/broker-1.properties]
"""
RETURN = """
rc:
  description: The command's exit code.
  type: int
  returned: always
stdout:
  description: What it wrote.
  type: str
  returned: always
stderr:
  description: What it complained of.
  type: str
  returned: always
"""

import select
import signal
import subprocess
from contextlib import suppress
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# Our own stdout: sshd holds the other end, and closes it when the connection or the play's channel in it
# is closed.
ANSWER_FD = 1
LOOK_S = 1.0
END_S = 10.0


def is_gone(descriptor: int) -> bool:
    """Whether nobody can read from the other end any more."""
    poller = select.poll()
    poller.register(descriptor, 0)  # errors and hang-ups are always reported
    return any(event & (select.POLLERR | select.POLLHUP) for _unused, event in poller.poll(0))


def attend(argv: list[str], stdin: str, answer: int = ANSWER_FD) -> dict[str, Any]:
    """Returns the command's result; ends the command when nobody can receive the result."""
    # A process that was started with ^C ignored, as by nohup, passes that on. A caught signal has its
    # default there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    text: str | None = stdin
    while True:
        try:
            stdout, stderr = process.communicate(text, timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            text = None  # already passed on; communicate continues where it was
            if is_gone(answer):
                process.send_signal(signal.SIGINT)  # like ^C: the command may have something to release
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
                process.kill()
            continue
        return {"rc": process.returncode, "stdout": stdout.strip(), "stderr": stderr.strip()}


def main() -> None:
    module = AnsibleModule(
        {
            "argv": {"type": "list", "elements": "str", "required": True},
            "stdin": {"type": "str", "default": "", "no_log": True},
        }
    )
    try:
        done = attend(module.params["argv"], module.params["stdin"])
    except OSError as error:
        module.fail_json(msg=f"{module.params['argv'][0]}: {error}", rc=127, stdout="", stderr=str(error))
    if done["rc"]:
        module.fail_json(msg=done["stderr"] or f"exit code {done['rc']}", **done)
    module.exit_json(changed=False, **done)


if __name__ == "__main__":
    main()
