"""Chooses which ready connections to serve first when a turn has no time for all of them.

Each connection is cheap, but a thousand of them make a turn last a second. So they wait, and a turn serves
some: first those that demand little, then the others in turn, by address and by connection within an address.
The first rule gives a connection with low demand its response at once beside any number with high demand,
even if all share an address. The second ensures that no connection starves, and one from another address
waits for one other at most.

Demand is the part of the thread that a connection would take if it were alone: the cost of its visits,
divided by the time between two visits. In a crowd the cost is processor time, as in :mod:`.shares`. Otherwise
wall-clock time is used where it is below the known cost. Rests longer than a few milliseconds do not lower
the demand further: otherwise ten thousand connections with one request per second would always come first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

from broker.network.request_channel import ConnectionInfo

# What a turn may spend in order of events, without regard to demand; and what it may spend on each of the two
# orders in a crowd.
TURN_NS: Final = 2_000_000
CROWD_NS: Final = 1_000_000
# Assumed for a connection that has not sent a request yet.
UNKNOWN_NS: Final = 200_000
_LONGEST_REST_NS: Final = 8_000_000
_WHOLE: Final = 10  # bits: a connection that never rests


class CrowdMember(Protocol):
    """The attributes of a connection that decide its place."""

    info: ConnectionInfo
    asked_ns: int
    last_active_ms: int


M = TypeVar("M", bound=CrowdMember)


def rank(asked_ns: int, rested_ns: int) -> int:
    """The demand as a rank: 0 for less than a thousandth of the thread, 21 for all of it. Two ranks more mean
    twice the demand.
    """
    asked_ns = max(asked_ns, 1)
    rested_ns = max(0, min(rested_ns, _LONGEST_REST_NS))
    share = (asked_ns << _WHOLE) // (asked_ns + rested_ns)
    return (share * share).bit_length()


class Crowd(Generic[M]):
    """The waiting connections of one Processor, used on its thread only. Each member is in it once, with its
    epoll events.

    ``members`` is read-only for callers. It is public because testing a dict for emptiness costs a tenth of a
    method call.
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[M, int]] = OrderedDict()
        self._ranks: tuple[OrderedDict[M, None], ...] = tuple(OrderedDict() for _ in range(2 * _WHOLE + 2))
        self.members: dict[M, tuple[int, OrderedDict[M, int]]] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: M) -> bool:
        return member in self.members

    def add(self, member: M, mask: int, now_ns: int) -> None:
        """Adds a member with its epoll events; one that is already there keeps its place."""
        known = self.members.get(member)
        if known is not None:
            known[1][member] |= mask
            return
        address = member.info.client_address
        neighbours = self._addresses.get(address)
        if neighbours is None:
            neighbours = self._addresses[address] = OrderedDict()
        neighbours[member] = mask
        place = rank(member.asked_ns, now_ns - member.last_active_ms * 1_000_000)
        self._ranks[place][member] = None
        self.members[member] = place, neighbours

    def least(self) -> tuple[M, int]:
        """Removes and returns the member with the lowest demand; of several, the one that waited longest.
        There must be one.
        """
        for members in self._ranks:
            if members:
                member = next(iter(members))
                return member, self.remove(member)
        raise KeyError("the crowd is empty")

    def next(self) -> tuple[M, int]:
        """Removes and returns the member whose turn it is. There must be one."""
        address, members = next(iter(self._addresses.items()))
        self._addresses.move_to_end(address)
        member = next(iter(members))
        return member, self.remove(member)

    def remove(self, member: M) -> int:
        """Removes the member and returns its epoll events; 0 if it is not there."""
        known = self.members.pop(member, None)
        if known is None:
            return 0
        place, neighbours = known
        del self._ranks[place][member]
        mask = neighbours.pop(member)
        if not neighbours:
            del self._addresses[member.info.client_address]
        return mask
