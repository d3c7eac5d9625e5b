"""How long nothing was heard from ZooKeeper: the longest time ever, and that of the last minutes. Pure."""

from __future__ import annotations

from typing import Final

PERIOD_S: Final = 300.0


class Silence:
    """The times between two messages from ZooKeeper, over all sessions of a broker. The thread of the connection
    tells of each message; any thread may read.
    """

    __slots__ = ("_before_s", "_began_s", "_heard_s", "_longest_s", "_period_s")

    def __init__(self) -> None:
        self._heard_s: float | None = None
        self._longest_s = 0.0
        # The longest of the present period and of the one before.
        self._period_s = self._before_s = self._began_s = 0.0

    def heard(self, now_s: float) -> None:
        """A message came at this time of the monotonic clock."""
        silent_s, self._heard_s = self._since_s(now_s), now_s
        self._longest_s = max(self._longest_s, silent_s)
        past_s = now_s - self._began_s
        if past_s >= PERIOD_S:
            self._before_s = self._period_s if past_s < 2 * PERIOD_S else 0.0
            self._period_s, self._began_s = 0.0, now_s
        self._period_s = max(self._period_s, silent_s)

    def longest_s(self, now_s: float) -> float:
        """The longest since the first message, with the one that lasts."""
        return max(self._longest_s, self._since_s(now_s))

    def recent_s(self, now_s: float) -> float:
        """The longest that ended in the last five minutes, or up to five before, and the one that lasts."""
        return max(self._period_s, self._before_s, self._since_s(now_s))

    def _since_s(self, now_s: float) -> float:
        return 0.0 if self._heard_s is None else now_s - self._heard_s
