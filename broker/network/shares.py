"""How much of the network thread a connection uses, which decides when in a turn it is served.

Most connections cost a turn next to nothing. Those that do not are *dear*: they come last, one after another, and all
of them together have one share of a turn, however many they are, so that ten cost the others what one does.

Costs are processor time, for on a busy machine everybody's requests take long by the clock. To ask for it costs a
microsecond, so it is asked for only where a visit has taken long by the clock once.
"""

from __future__ import annotations

from typing import Final

# Of one connection's requests in one turn, by the clock, looked at between any two.
VISIT_NS: Final = 2_000_000
# Of all dear connections in one turn; the last of them may take its visit beyond that.
DEAR_TURN_NS: Final = 5_000_000
# A visit's processor time from which on a connection is dear.
DEAR_NS: Final = 500_000
# Below this nobody need be watched.
_CHEAP_NS: Final = 100_000
# A new connection of an address that had dear ones is taken for one of them so long, until a visit shows what it costs.
_REMEMBERED_MS: Final = 10_000
_MOST_REMEMBERED: Final = 10_000


def cost_after(cost_ns: int, spent_ns: int) -> int:
    """A connection's cost after a visit that took ``spent_ns``: the dearest of the last visits, of each later one an
    eighth less, so that who asks cheap and dear things by turns stays dear; 0 for who need not be watched any more.
    """
    cost_ns = max(spent_ns, cost_ns - (cost_ns >> 3))
    return cost_ns if cost_ns >= _CHEAP_NS else 0


def asked_after(asked_ns: int, spent_ns: int) -> int:
    """The average of the last visits, by processor time, after one more. It decides a connection's place in a
    :mod:`.crowd`, where a dear one counts as little as it can.
    """
    return asked_ns + ((min(spent_ns, DEAR_NS) - asked_ns) >> 2)


class DearAddresses:
    """Who had dear connections a moment ago: to hang up and come again makes nobody cheap. One Processor's, on its
    thread.
    """

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}

    def add(self, address: str, now_ms: int) -> None:
        if address in self._until_ms or len(self._until_ms) < _MOST_REMEMBERED:
            self._until_ms[address] = now_ms + _REMEMBERED_MS

    def first_cost(self, address: str) -> int:
        """The cost that a new connection begins with: dear, and cheap after its first cheap visit."""
        return DEAR_NS + 1 if address in self._until_ms else 0

    def forget_old(self, now_ms: int) -> None:
        """Once in a while."""
        if self._until_ms:
            self._until_ms = {
                address: until_ms for address, until_ms in self._until_ms.items() if until_ms > now_ms
            }
