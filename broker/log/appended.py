"""Small questions about batches that are appended: who wrote them, how they spread over segments, which are recent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.log.segment import AppendedBatch
from broker.record.header import BatchHeader


def any_has_producer(headers: Sequence[BatchHeader]) -> bool:
    """Whether one of them is of an idempotent producer."""
    return any(header.producer_id >= 0 for header in headers)


def drop_older_half(recent: dict[int, int]) -> None:
    """Leaves the later half: in one go, for a look-up that finds nothing there costs little."""
    for offset in list(recent)[: len(recent) // 2]:
        del recent[offset]


def runs_that_fit(batches: Sequence[AppendedBatch], max_bytes: int) -> Iterator[Sequence[AppendedBatch]]:
    """``batches`` in runs that fit a segment of ``max_bytes`` each."""
    start = size = 0
    for number, batch in enumerate(batches):
        if size and size + batch[2] > max_bytes:
            yield batches[start:number]
            start, size = number, 0
        size += batch[2]
    yield batches[start:]
