"""ZooKeeper's clock, by which leases in ZooKeeper last: whatever the hosts' clocks say, all have this one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from broker.zookeeper.store import NoNodeError, Store

CLOCK: Final = "/landline/clock"


def now_ms(store: Store) -> int:
    """ZooKeeper's current time, as it stamps a write. Raises the store's errors."""
    try:
        return store.set(CLOCK, b"").mtime_ms
    except NoNodeError:
        store.ensure_path(CLOCK)
        return store.set(CLOCK, b"").mtime_ms


def since(at_ms: int) -> str:
    """Such a time in words, with "since" and a space before them. Empty where `in_words` is."""
    words = in_words(at_ms)
    return f" since {words}" if words else ""


def in_words(at_ms: int) -> str:
    """Such a time in words. Empty for one that was not noted, and for one that is in no year, written by hand."""
    if at_ms < 0:
        return ""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return ""
