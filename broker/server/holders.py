"""Who has the stop permit and the turn to move partitions, for the status page.

Read from ZooKeeper when somebody looks, on a thread of its own, and nothing is written: whether a lease is over is seen
by this host's clock, not by ZooKeeper's as for those who want it (`zookeeper_lease`).
"""

from __future__ import annotations

from typing import Final

from broker.server.http.overview import Holders, PermitRow, TurnRow
from broker.server.moves.turn import MoveTurn
from broker.server.stopping.stop_permit import StopPermit
from broker.server.zookeeper_clock import in_words
from broker.utils.aside import Aside
from broker.utils.clock import Clock
from broker.zookeeper.store import Store, StoreError

# ZooKeeper answers in milliseconds. A page that waits longer is worse than one that does not know.
_WAIT_S: Final = 0.5
_MOST_MS: Final = 2_000


class HoldersReader:
    """Reads both leases. Owned by the reports, whose status page is made by one thread at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._permit = StopPermit(store)
        self._turn = MoveTurn(store)
        self._clock = clock
        self._aside = Aside("lease-holders", self._read, clock)

    def current(self) -> Holders | None:
        """Who has them now; None if ZooKeeper does not answer at once."""
        self._aside.begin(_WAIT_S)
        return self._aside.answer(_MOST_MS)

    def _read(self) -> Holders | None:
        try:
            permit, turn = self._permit.noted(), self._turn.noted()
        except StoreError:  # ZooKeeper is away, which the page says
            return None
        now_ms = self._clock.wall_ms()
        return Holders(
            None
            if permit is None or permit[1] <= now_ms
            else PermitRow(
                permit[0].holder, permit[0].broker_id, in_words(permit[0].since_ms), in_words(permit[1])
            ),
            None
            if turn is None or turn[1] <= now_ms
            else TurnRow(
                turn[0].holder,
                turn[0].command,
                in_words(turn[0].since_ms),
                in_words(turn[1]),
                is_ending=turn[0].is_ending,
            ),
        )
