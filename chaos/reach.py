"""Counts what the faults caused in the brokers, from their logs: a walk that truncated no log would
prove little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "controller_elected": "controllers elected",
    "leader_elected": "leaders elected",
    "isr_shrinks": "ISRs shrunk by their leader",
    "isr_expands": "ISRs grown by their leader",
    "follower_truncates": "logs cut back to their leader's",
    "zookeeper_session_expired": "sessions expired",
    "log_dirs_failed": "log directories failed",
}
"""The log events that are counted, and their names in the report."""

_EVENT = re.compile(rf"^\S+ \S+ landline\S* \S+ (?:info|warning|error) ({'|'.join(EVENTS)}) ", re.MULTILINE)


def reached(journal: str) -> Counter[str]:
    """Counts the events in a host's journal, as ``journalctl`` prints it with ``short-iso-precise``."""
    return Counter(EVENTS[name] for name in _EVENT.findall(journal))
