"""A leader's state of one follower: how far it fetched, and when it was last caught up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.protocol.epochs import NO_EPOCH
from broker.protocol.offsets import UNKNOWN_OFFSET

NEVER_MS: Final = -(1 << 60)


class FollowerState(NamedTuple):
    """A leader's snapshot of one follower; Kafka's ``Replica``. :meth:`after_fetch` returns the next
    snapshot. Times are monotonic milliseconds.

    ``last_caught_up_ms`` is the last time the follower had everything the leader had. If it fetches from the
    leader's end, that is the time of this fetch. If it fetches from where the end was at its previous fetch,
    it is the time of that one.
    """

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    last_fetch_leader_end_offset: int = 0
    broker_epoch: int = NO_EPOCH

    def after_fetch(
        self, fetch_offset: int, log_start_offset: int, now_ms: int, leader_end_offset: int, broker_epoch: int
    ) -> FollowerState:
        """The state after a fetch from ``fetch_offset``, which acknowledges everything before it."""
        broker_id, _, _, caught_up_ms, last_fetch_ms, last_end_offset, _ = self
        if fetch_offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif fetch_offset >= last_end_offset:
            caught_up_ms = max(caught_up_ms, last_fetch_ms)
        end_offset = max(leader_end_offset, last_end_offset)
        return FollowerState(
            broker_id, fetch_offset, log_start_offset, caught_up_ms, now_ms, end_offset, broker_epoch
        )

    def reset(
        self, now_ms: int, *, in_isr: bool, leader_end_offset: int, keep_position: bool
    ) -> FollowerState:
        """The state when a leader's term begins. One that led all the time before keeps the acknowledged position.

        An ISR member has the lag time to fetch again; any other replica must catch up before it counts.
        """
        return self._replace(
            log_end_offset=self.log_end_offset if keep_position else UNKNOWN_OFFSET,
            log_start_offset=self.log_start_offset if keep_position else UNKNOWN_OFFSET,
            last_caught_up_ms=now_ms if in_isr else NEVER_MS,
            last_fetch_ms=now_ms if in_isr else NEVER_MS,
            last_fetch_leader_end_offset=leader_end_offset,
        )


def low_watermark(
    log_start_offset: int, followers: Iterable[FollowerState], alive: Callable[[int], bool]
) -> int:
    """The smallest log start of a leader and its live followers; -1 while one has not fetched yet."""
    starts = (follower.log_start_offset for follower in followers if alive(follower.broker_id))
    return min((log_start_offset, *starts))
