"""Announcements of changes: Kafka's sequential znodes below one parent, which every broker reads and any may delete.

What they say, and how they are read, is a matter of the part whose changes they announce.
"""

from __future__ import annotations

from typing import Final

from broker.zookeeper.store import Delete, NoNodeError, Store, or_raise

KEPT_MS: Final = 15 * 60 * 1000
_AT_ONCE: Final = 100
_DIGITS: Final = 10  # of the number that ZooKeeper gives to a sequential znode


def purge(store: Store, parent: str, horizon_ms: int) -> int:
    """Deletes the announcements from before ``horizon_ms``, which every broker has seen; returns how many.

    It begins with the oldest, and ends at the first that stays. So the ten thousand of a busy quarter of an hour are
    not read each time that one is added, and never all at once.
    """
    try:
        names = store.children(parent)
    except NoNodeError:
        return 0
    names.sort(key=lambda name: name[-_DIGITS:])
    purged = 0
    for begin in range(0, len(names), _AT_ONCE):
        paths = [f"{parent}/{name}" for name in names[begin : begin + _AT_ONCE]]
        nodes = [
            (path, node[1].ctime_ms)
            for path, node in zip(paths, store.get_many(paths), strict=True)
            if node is not None
        ]
        old = [path for path, ctime_ms in nodes if ctime_ms < horizon_ms]
        for result in store.multi_many([[Delete(path)] for path in old]):
            if not isinstance(result, NoNodeError):  # another broker deletes them too
                or_raise(result)
                purged += 1
        if len(old) < len(nodes):
            break
    return purged
