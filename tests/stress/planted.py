"""Defects of threads and of the cleaner, put back in one at a time: what shows that the run would notice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.log.cleaning import cleaner
from broker.log.log_appender import LogAppender
from tests.support.mutations import Mutation, Patch


def _flush_inside(original: Any) -> Any:
    def append_fetched(self: LogAppender, *arguments: Any) -> Any:
        durability = self._durability
        with self._context.lock:
            info = original(self, *arguments)
            if durability.flush_due:
                durability.flush()
            return info

    return append_fetched


def _drop_some(original: Any) -> Any:
    def compact_batch(view: Any, header: Any, rules: Any) -> Any:
        return None if header.base_offset % 97 == 0 else original(view, header, rules)

    return compact_batch


_ALL = (
    Mutation(
        "flush-within-a-followers-append",
        "a follower syncs what it appended with no lock held",
        (Patch(LogAppender, "append_fetched", _flush_inside),),
    ),
    Mutation(
        "compaction-drops-a-batch",
        "compaction keeps the last record of each key",
        (Patch(cleaner, "compact_batch", _drop_some),),
    ),
)
PLANTED: Mapping[str, Mutation] = {mutation.name: mutation for mutation in _ALL}
