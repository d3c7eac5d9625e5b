"""Guards of transactional batches whose transaction is being verified with its coordinator (KIP-890, part 1).

The first batch of a transaction is appended only after the coordinator has confirmed that the partition is
part of it. Meanwhile that transaction may end. So the leader gives out a guard before it asks, and a marker
makes the guard void: a batch that comes too late is refused, and cannot begin a transaction that nobody ends.
"""

from __future__ import annotations

from itertools import islice
from typing import Final


class VerificationGuard:
    """A token for one verification; Kafka's VerificationGuard. It has no content: only its identity counts."""

    __slots__ = ()


#: The guard of a batch that was not verified: its transaction was open already. It guards nothing.
NOT_VERIFIED: Final = VerificationGuard()


class _Verification:
    """What is verified for a producer, since ``started_ms``; Kafka's VerificationStateEntry."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "started_ms")

    def __init__(self, epoch: int, sequence: int, started_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms


class Verifications:
    """The verifications under way in one log, by producer id.

    Invariant: at most ``most`` of them. With more, the oldest are dropped, and their batches are refused.
    Owned by one ProducerStateManager and guarded by the log's lock.
    """

    __slots__ = ("_by_producer", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_producer: dict[int, _Verification] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> VerificationGuard:
        """Begins or continues a verification for the producer's batch that begins at ``sequence``."""
        known = self._by_producer.get(producer_id)
        if known is None:
            if len(self._by_producer) >= self._most:
                self.forget(1)
            known = self._by_producer[producer_id] = _Verification(epoch, sequence, now_ms)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known.guard

    def holds(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether the guard is still the producer's."""
        known = self._by_producer.get(producer_id)
        return known is not None and known.guard is guard

    def lowest_sequence(self, producer_id: int) -> int | None:
        """The lowest sequence that awaits verification: a later batch must not be appended before it. None if
        nothing is being verified.
        """
        known = self._by_producer.get(producer_id)
        return None if known is None else known.lowest_sequence

    def end(self, producer_id: int) -> None:
        """Voids the producer's guard: its transaction began or ended in the log."""
        if self._by_producer:
            self._by_producer.pop(producer_id, None)

    def forget(self, count: int) -> int:
        """Drops the ``count`` oldest, or all if there are less; returns how many."""
        oldest = list(islice(self._by_producer, count))
        for producer_id in oldest:
            del self._by_producer[producer_id]
        return len(oldest)

    def expire(self, before_ms: int) -> None:
        """Drops those that began before ``before_ms``."""
        old = [pid for pid, each in self._by_producer.items() if each.started_ms <= before_ms]
        for producer_id in old:
            del self._by_producer[producer_id]

    def clear(self) -> None:
        self._by_producer.clear()
