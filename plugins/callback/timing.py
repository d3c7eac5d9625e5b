# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Prints after the recap what a task wants to be seen there, the duration of the run and its slowest tasks."""

from __future__ import annotations

DOCUMENTATION = """
name: timing
type: aggregate
short_description: Wall time of the run and its slowest tasks, and a warning
description:
  - One line after the recap. A task counts from its start to the start of the next one.
  - Before it comes the warning that a task gave to C(set_stats) as C(landline_warning), once for the run.
author: The Landline authors (!UNKNOWN)
requirements:
  - enable it in ansible.cfg
"""

import time
from typing import Any

from ansible.plugins.callback import CallbackBase

SLOWEST = 5
WARNING = "landline_warning"


class CallbackModule(CallbackBase):  # type: ignore[misc] # Ansible has no types
    """A callback plugin that adds up wall-clock time by task name."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "timing"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._begin = self._since = time.monotonic()
        self._name = ""
        self._seconds: dict[str, float] = {}

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002 - Ansible's signature
        self._next(task.get_name())

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._next(task.get_name())

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._next("")
        if words := stats.custom.get("_run", {}).get(WARNING):
            self._display.warning(words)
        slowest = sorted(self._seconds.items(), key=lambda entry: -entry[1])[:SLOWEST]
        listed = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in slowest)
        self._display.display(f"{time.monotonic() - self._begin:.1f} s in all; longest: {listed}\n")

    def _next(self, name: str) -> None:
        now = time.monotonic()
        if self._name:
            self._seconds[self._name] = self._seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now
