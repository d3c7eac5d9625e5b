"""For which epoll events a connection is watched. No IO.

Of most connections epoll tells as long as there is something to read. Of those that have been in a crowd it tells each
arrival once (``IN_ONCE``), until a receive leaves something unread.
"""

from __future__ import annotations

import select
from typing import Final

from broker.network.connection import THROTTLED, Connection

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT
HALF_CLOSED: Final = select.EPOLLRDHUP
GONE: Final = select.EPOLLHUP | select.EPOLLERR
IN_OR_GONE: Final = IN | GONE
#: The peer will send no more; an end is no arrival of its own if it comes with data.
ENDS: Final = GONE | HALF_CLOSED
IN_ONCE: Final = IN | HALF_CLOSED | select.EPOLLET


def events_of(connection: Connection) -> int:
    """The events to watch for: readable unless muted or output is unsent, writable if output is unsent."""
    events = OUT if connection.out else 0
    if not connection.muted and not connection.starved:
        events |= IN
    elif (
        (connection.in_flight or connection.muted & THROTTLED)
        and not events
        and not connection.is_half_closed
    ):
        events = HALF_CLOSED  # a peer that waits may hang up
    if connection.transport.wants:
        return connection.transport.wants
    if events == IN and connection.events == IN_ONCE and connection.drained:
        return IN_ONCE
    return events
