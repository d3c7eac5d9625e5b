"""The transactions that hold back a log's last stable offset. In memory only.

:mod:`.producer_state` reports where they begin and end; the log combines the result with its high watermark.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from broker.log.results import AbortedTransaction


class OpenTransactions:
    """The open transactions of a log, and those whose marker is not known to be replicated; the maps
    ongoingTxns and unreplicatedTxns of Kafka's ProducerStateManager.

    Invariant: the open ones are in the order of their first offsets, the ended ones in the order of their
    markers. ``_first`` is None only if there are neither. Owned by one ProducerStateManager and guarded by the log's
    lock; ``bool`` needs no lock.
    """

    __slots__ = ("_ended", "_first", "_ongoing")

    def __init__(self) -> None:
        # An OrderedDict finds its first entry at once, however many before it were removed.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        self._ended: deque[AbortedTransaction] = deque()
        self._first: int | None = None

    def __bool__(self) -> bool:
        return self._first is not None  # one look: a transaction that ends moves from one map to the other

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self._ongoing)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Adds a transaction that begins at the log's end."""
        self._ongoing[first_offset] = producer_id
        if self._first is None:
            self._first = first_offset

    def end(self, producer_id: int, first_offset: int, marker_offset: int) -> AbortedTransaction:
        """Ends a transaction by the marker at ``marker_offset``. Returns its entry for the transaction index,
        with the last stable offset after it.
        """
        self._ongoing.pop(first_offset, None)
        stable = next(iter(self._ongoing), marker_offset + 1)
        ended = AbortedTransaction(producer_id, first_offset, marker_offset, stable)
        self._ended.append(ended)  # until the marker is replicated, the first unstable offset stays
        return ended

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not below the high watermark."""
        self.forget_replicated(high_watermark)
        return self._first

    def forget_replicated(self, high_watermark: int) -> None:
        """Drops the ended transactions whose markers are below the high watermark. Call it now and then also where
        nobody asks for the stable offset, as on followers.
        """
        ended = self._ended
        if ended and ended[0].last_offset < high_watermark:
            while ended and ended[0].last_offset < high_watermark:
                ended.popleft()
            self._note_first()

    def drop(self, first_offset: int) -> None:
        """Forgets an open transaction."""
        self._ongoing.pop(first_offset, None)
        self._note_first()

    def _note_first(self) -> None:
        starts = [each.first_offset for each in self._ended]
        if self._ongoing:
            starts.append(next(iter(self._ongoing)))
        self._first = min(starts, default=None)

    @property
    def open_ones(self) -> Mapping[int, int]:
        """The open transactions: the producer of each, by first offset."""
        return self._ongoing

    @property
    def oldest_producer(self) -> int | None:
        """The producer of the open transaction that began first."""
        return next(iter(self._ongoing.values()), None)

    def load(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Adds the open ones of a snapshot, as (first offset, producer id); there are no others yet."""
        for first_offset, producer_id in sorted(transactions):
            self.begin(first_offset, producer_id)
