"""What each playbook costs the clients of a load, which a test of playbooks runs one after another."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from chaos.load import Load


class PlaybookCosts:
    """Notes how long each playbook took, and how long a partition of the load waited meanwhile."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float | int | str]] = []
        """As `tools.day_two_figures` takes them."""

    def run(self, what: str, load: Load, play: Callable[[], subprocess.CompletedProcess[str]]) -> str:
        """What the playbook said. Returns when the load goes on."""
        began = time.monotonic()
        done = play()
        ended = time.monotonic()
        load.await_progress(200, timeout_s=120)
        # What still waits as the playbook ends has waited for it.
        gap_s = load.worst_gap_s(began, time.monotonic())
        self.rows.append({"what": what, "took_s": ended - began, "longest_gap_s": gap_s})
        print(self.rows[-1])
        return done.stdout

    @property
    def longest_gap_s(self) -> float:
        """Of all playbooks so far."""
        return max(float(row["longest_gap_s"]) for row in self.rows)

    @property
    def took_s(self) -> float:
        """All playbooks so far, without what is between them."""
        return sum(float(row["took_s"]) for row in self.rows)
