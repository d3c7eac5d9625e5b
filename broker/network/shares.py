"""How much of the network thread a connection uses, which decides when in a turn it is served.

Most connections cost almost nothing per turn. Those that do not are called *dear* (expensive). They come
last, one after another, and together have one share of a turn. However many there are, they cost the others
no more than one would.

Costs are processor time, because on a busy machine every request takes long in wall-clock time. Reading
processor time costs a microsecond, so it is read only after a visit took long in wall-clock time.
"""

from __future__ import annotations

from typing import Final

# Limit for one connection's requests in one turn, in wall-clock time, checked between any two of them.
VISIT_NS: Final = 2_000_000
# Limit for all expensive connections in one turn; the visit of the last one may exceed it.
DEAR_TURN_NS: Final = 5_000_000
# A connection is expensive from this processor time per visit on.
DEAR_NS: Final = 500_000
# Below this a connection need not be measured.
_CHEAP_NS: Final = 100_000
# A new connection from an address that had expensive ones is assumed expensive for this long, or until its
# first visit shows its cost.
_REMEMBERED_MS: Final = 10_000
_MOST_REMEMBERED: Final = 10_000


def cost_after(cost_ns: int, spent_ns: int) -> int:
    """A connection's cost after a visit that took ``spent_ns``: the maximum of the last visits, of which each
    later visit takes off an eighth. A connection that alternates cheap and expensive requests therefore stays
    expensive. 0 when it need no longer be measured.
    """
    cost_ns = max(spent_ns, cost_ns - (cost_ns >> 3))
    return cost_ns if cost_ns >= _CHEAP_NS else 0


def asked_after(asked_ns: int, spent_ns: int) -> int:
    """The moving average of the processor time of the last visits, after one more visit. It decides the
    connection's place in a :mod:`.crowd`. An expensive visit counts for no more than ``DEAR_NS``.
    """
    return asked_ns + ((min(spent_ns, DEAR_NS) - asked_ns) >> 2)


class DearAddresses:
    """Addresses that recently had expensive connections: reconnecting does not make a client cheap. One
    Processor's, used on its thread only.
    """

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}

    def add(self, address: str, now_ms: int) -> None:
        if address in self._until_ms or len(self._until_ms) < _MOST_REMEMBERED:
            self._until_ms[address] = now_ms + _REMEMBERED_MS

    def first_cost(self, address: str) -> int:
        """The initial cost of a new connection from the address; a cheap first visit resets it."""
        return DEAR_NS + 1 if address in self._until_ms else 0

    def forget_old(self, now_ms: int) -> None:
        """Removes expired addresses; called from time to time."""
        if self._until_ms:
            self._until_ms = {
                address: until_ms for address, until_ms in self._until_ms.items() if until_ms > now_ms
            }
