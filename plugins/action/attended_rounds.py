# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a long command in rounds, and shows after each one how far it is."""

from __future__ import annotations

import json
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

NOT_YET = 75
MODULE = "landline.cluster.attended_command"

display = Display()


class Rounds:
    """What the rounds of a command said. ``quiet_s`` is how long they may bring nothing nearer to the end."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._best: tuple[int, int] | None = None
        self._since = 0.0
        self.plan: Any = None
        self.stays: list[str] = []
        self.changed = False
        self._any = False

    @property
    def options(self) -> list[str]:
        """More options of the next round: once one was, the turn must still be this run's."""
        return ["--held"] if self._any else []

    def note(self, rc: int, stdout: str, now: float) -> str | None:
        """Takes in a round's outcome; returns why no other one is to follow, and "" when the work is done."""
        told = json.loads(stdout)
        self.plan = self.plan or told["plan"]
        self.changed = self.changed or told["changed"]
        self._any = True
        if rc != NOT_YET:
            words = (told.get("left") or {}).get("words", "")
            self.stays = [each for each in words.split("; ") if " stays " in each]
            return ""
        left = told["left"]
        size = left["replicas"], left["bytes"]
        if self._best is None or size < self._best:
            self._best, self._since = size, now
        if now - self._since < self._quiet_s:
            return None
        return f"nothing has come nearer to the end for {self._quiet_s:.0f} s: {left['words']}. Run it again to go on"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Ansible's entry point."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = self._task.args
        argv = [str(each) for each in arguments["argv"]]
        round_s, quiet_s = float(arguments.get("round_s", 15)), float(arguments.get("quiet_s", 600))
        takes_turns = any(each.startswith("--holder=") for each in argv)
        rounds, began = Rounds(quiet_s), time.monotonic()
        while True:
            more = rounds.options if takes_turns and "--held" not in argv else []
            module = {"argv": [*argv, *more, "--json", f"--within={round_s:g}"]}
            done = self._execute_module(module_name=MODULE, module_args=module, task_vars=task_vars)
            rc = done.get("rc")
            if rc not in {0, NOT_YET}:
                words = done.get("stderr") or done.get("module_stderr") or done.get("msg")
                return {**result, **done, "failed": True, "msg": words, "changed": rounds.changed}
            why = rounds.note(rc, done["stdout"], time.monotonic())
            if why is not None:
                took_s = round(time.monotonic() - began, 1)
                told = {
                    "changed": rounds.changed,
                    "plan": rounds.plan,
                    "stays": rounds.stays,
                    "took_s": took_s,
                }
                return {**result, **told, **({"failed": True, "msg": why} if why else {})}
            display.display(f"  {json.loads(done['stdout'])['left']['words']}")
