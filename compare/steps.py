"""The steps of daemons that publish no events, from their logs: ZooKeeper's and Spark's. Pure.

A process's log is its lines with their times. The table here says which line ends which
step (docs/lifecycle.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compare.events import Event, Story

# By role: each step and the line that ends it, in order.
STEPS: dict[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "zookeeper": (("Election", re.compile(r"Peer state changed: (leading|following) - broadcast")),),
    "spark-master": (
        ("Bind", re.compile(r"Successfully started service 'sparkMaster' on port")),
        ("Elected", re.compile(r"I have been elected leader! New state: ALIVE")),
    ),
    "spark-worker": (
        ("Connect", re.compile(r"Connecting to master ")),
        ("Register", re.compile(r"Successfully registered with master")),
    ),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A log line and its time, in microseconds since 1970."""

    at_us: int
    text: str


@dataclass(frozen=True, slots=True)
class ProcessLog:
    """One process's lines, oldest first, at least one; ``boot_id`` is empty if the source does not
    have it.
    """

    lines: tuple[Line, ...]
    boot_id: str = ""


def begun(lines: Sequence[Line], begins_us: Iterable[int]) -> int | None:
    """When the process with these lines began: the last start before its first line."""
    return max((at_us for at_us in begins_us if at_us <= lines[0].at_us), default=None)


def tell(story: Story, log: ProcessLog, began_us: int | None) -> list[Event]:
    """Adds the start's steps to ``story``. The first step that was not reached failed, and then there is
    no Ready.
    """
    first_us, last_us = log.lines[0].at_us, log.lines[-1].at_us
    if began_us is not None:
        story.add("Process", began_us, first_us)
    at_us = first_us
    for step, pattern in STEPS[story.role]:
        end_us = next((ln.at_us for ln in log.lines if ln.at_us >= at_us and pattern.search(ln.text)), None)
        if end_us is None:
            story.add(step, at_us, last_us, detail=f"no line {pattern.pattern!r}")
            return story.events
        story.add(step, at_us, end_us)
        at_us = end_us
    story.add("Ready", first_us if began_us is None else began_us, at_us)
    return story.events
