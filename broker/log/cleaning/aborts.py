"""The aborted transactions of a log that is compacted: which batches are theirs, and whether the batches bear them out.

Pure. One look at a batch takes the same time however many transactions there are: each producer can abort as many as
the log has room for, and any number of them can be under way at the same time. :mod:`.cleaner` reads the indexes, the
markers and the batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from broker.log.results import AbortedTransaction
from broker.record.header import BatchHeader

_first_offset = attrgetter("first_offset")


class AbortedRanges:
    """The transactional batches that belong to aborted transactions."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        # Of each producer, the first and the last offsets of ranges that rise and do not overlap.
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for transaction in sorted(transactions, key=_first_offset):
            firsts, lasts = self._by_producer.setdefault(transaction.producer_id, ([], []))
            if lasts and transaction.first_offset <= lasts[-1]:
                lasts[-1] = max(lasts[-1], transaction.last_offset)
            else:
                firsts.append(transaction.first_offset)
                lasts.append(transaction.last_offset)

    def __contains__(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._by_producer.get(header.producer_id)
        if ranges is None:
            return False
        firsts, lasts = ranges
        before = bisect_right(firsts, header.base_offset) - 1
        return before >= 0 and header.base_offset <= lasts[before]


def first_refuted(
    transactions: Iterable[AbortedTransaction], headers_for: Callable[[int], Iterator[BatchHeader]]
) -> AbortedTransaction | None:
    """The first of ``transactions`` that the batches rule out; None if there is none.

    A transaction's first batch is in place or compacted away, and no marker ended it before its own. ``headers_for``
    gives the batches of the log, rising, from some batch at or before the one that holds an offset. Those behind the
    end of a transaction are read for the ones that begin there, and those between transactions not at all.
    """
    for together in _overlapping(sorted(transactions, key=_first_offset)):
        refuted = _first_refuted_of(together, headers_for(together[0].first_offset))
        if refuted is not None:
            return refuted
    return None


def _overlapping(rising: Iterable[AbortedTransaction]) -> Iterator[Sequence[AbortedTransaction]]:
    """The transactions in groups, of which each begins behind the end of the one before."""
    together: list[AbortedTransaction] = []
    end = 0
    for transaction in rising:
        if together and transaction.first_offset > end:
            yield together
            together = []
        together.append(transaction)
        end = max(end, transaction.last_offset)
    if together:
        yield together


def _first_refuted_of(
    rising: Sequence[AbortedTransaction], headers: Iterable[BatchHeader]
) -> AbortedTransaction | None:
    end = max(transaction.last_offset for transaction in rising)
    waiting = deque(rising)
    begun: dict[int, AbortedTransaction] = {}  # by producer, the one that ends last
    for header in headers:
        if header.base_offset >= end:
            break
        own = begun.get(header.producer_id)
        if own is not None and header.is_control and header.base_offset < own.last_offset:
            return own
        while waiting and waiting[0].first_offset <= header.last_offset:
            transaction = waiting.popleft()
            if header.base_offset >= transaction.last_offset:
                continue  # only its marker is left
            is_own = header.producer_id == transaction.producer_id
            if header.is_control if is_own else header.base_offset <= transaction.first_offset:
                return transaction
            known = begun.get(transaction.producer_id)
            if known is None or known.last_offset < transaction.last_offset:
                begun[transaction.producer_id] = transaction
    return None
