"""Connections that are ready in a turn that has no time for all of them: who is next.

Each is cheap, but a thousand of them make a turn of a second. So they wait, and a turn serves some: first those that
ask for little, then those whose turn it is, by address and by connection within one. By the first, who asks for little
has its answer at once beside any number that ask for more, also where all of them share an address; by the second,
nobody is left out, and who comes from elsewhere waits for one other at most.

How much somebody asks for is the part of the thread that it would take if it were alone: what its visits cost, of the
time from one to the next. In a crowd that is processor time, as in :mod:`.shares`; else the clock will do, where it
says less than was known. Who rests for longer than some milliseconds gains nothing by it, else ten thousand that ask
once a second would ask for less than anybody.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

from broker.network.request_channel import ConnectionInfo

# What a turn may use for who comes first without looking at what each asks for, and in a crowd for each of both orders.
TURN_NS: Final = 2_000_000
CROWD_NS: Final = 1_000_000
# Of a connection that has not asked for anything yet.
UNKNOWN_NS: Final = 200_000
_LONGEST_REST_NS: Final = 8_000_000
_WHOLE: Final = 10  # bits: who never rests


class CrowdMember(Protocol):
    """A connection, as far as its place goes."""

    info: ConnectionInfo
    asked_ns: int
    last_active_ms: int


M = TypeVar("M", bound=CrowdMember)


def rank(asked_ns: int, rested_ns: int) -> int:
    """From 0, for who would take less than a thousandth of the thread, to 21, for who would take it all; with each two
    it is twice as much.
    """
    asked_ns = max(asked_ns, 1)
    rested_ns = max(0, min(rested_ns, _LONGEST_REST_NS))
    share = (asked_ns << _WHOLE) // (asked_ns + rested_ns)
    return (share * share).bit_length()


class Crowd(Generic[M]):
    """One Processor's, on its thread. Each member is in it once, with what epoll said of it. ``members`` is read only:
    to ask a dict whether it is empty costs a tenth of what a method does.
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[M, int]] = OrderedDict()
        self._ranks: tuple[OrderedDict[M, None], ...] = tuple(OrderedDict() for _ in range(2 * _WHOLE + 2))
        self.members: dict[M, int] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: M) -> bool:
        return member in self.members

    def add(self, member: M, mask: int, now_ns: int) -> None:
        """Who is there already keeps its place."""
        members = self._addresses.setdefault(member.info.client_address, OrderedDict())
        known = members.get(member)
        if known is not None:
            members[member] = known | mask
            return
        members[member] = mask
        place = self.members[member] = rank(member.asked_ns, now_ns - member.last_active_ms * 1_000_000)
        self._ranks[place][member] = None

    def least(self) -> tuple[M, int]:
        """Takes out who asks for the least, the longest there of several. There must be somebody."""
        member = next(iter(next(filter(None, self._ranks))))
        return member, self.remove(member)

    def next(self) -> tuple[M, int]:
        """Takes out whose turn it is. There must be somebody."""
        address, members = next(iter(self._addresses.items()))
        self._addresses.move_to_end(address)
        member = next(iter(members))
        return member, self.remove(member)

    def remove(self, member: M) -> int:
        """What epoll said of it; 0 for who is not there."""
        place = self.members.pop(member, None)
        if place is None:
            return 0
        del self._ranks[place][member]
        address = member.info.client_address
        members = self._addresses[address]
        mask = members.pop(member)
        if not members:
            del self._addresses[address]
        return mask
