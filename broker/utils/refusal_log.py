"""At most one log line per second for each refused peer: a peer can repeat a refused request as fast as
it likes.

Omitted lines are counted, and the count is logged with the peer's next line. Peers are client addresses. When
there are too many peers, the rest share one line per second, so that the table is bounded too.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import structlog

_log = structlog.get_logger("broker.refusals")
_PAUSE_NS: Final = 1_000_000_000
_MAX_PEERS: Final = 1024
_MAX_REASON: Final = 256
_OTHERS: Final = ""


class Refusals:
    """Decides which peers may have a log line now. Thread-safe. ``clock_ns`` is monotonic."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns, max_peers: int = _MAX_PEERS) -> None:
        self._clock_ns = clock_ns
        self._max_peers = max_peers
        self._peers: OrderedDict[str, tuple[int, int]] = OrderedDict()  # last line's time, omitted since
        self._lock = threading.Lock()  # lock order 84

    def left_out(self, peer: str) -> int | None:
        """The number of refusals omitted since this peer's last line; None if this one must
        be omitted too.
        """
        now_ns = self._clock_ns()
        with self._lock:
            if peer not in self._peers:
                peer = self._place_for(peer, now_ns)
            last_ns, count = self._peers.get(peer, (now_ns - _PAUSE_NS, 0))
            if now_ns - last_ns < _PAUSE_NS:
                self._peers[peer] = (last_ns, count + 1)
                return None
            self._peers[peer] = (now_ns, 0)
            self._peers.move_to_end(peer)
            return count

    def _place_for(self, peer: str, now_ns: int) -> str:
        """The peer's own entry, replacing the oldest one if that has expired; otherwise the entry shared by
        all others.
        """
        if len(self._peers) < self._max_peers:
            return peer
        oldest = next(iter(self._peers))
        if now_ns - self._peers[oldest][0] < _PAUSE_NS:
            return _OTHERS
        del self._peers[oldest]
        return peer


_refusals = Refusals()


def log_refusal(event: str, peer: str, reason: str, **values: Any) -> None:
    """Logs a warning ``event``, unless ``peer`` had one less than a second ago. The reason is cut to a
    maximum length.
    """
    left_out = _refusals.left_out(peer)
    if left_out is None:
        return
    if left_out:
        values["left_out"] = left_out
    _log.warning(event, reason=reason[:_MAX_REASON], peer=peer, **values)
