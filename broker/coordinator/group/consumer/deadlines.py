"""Deadlines of a group's members, the earliest first. Pure."""

from __future__ import annotations

import heapq
from collections.abc import KeysView

from broker.coordinator.group.messages import NEVER_MS

#: So many entries of members without a deadline may stay, beside as many as there are members with one.
_MOST_LEFT = 64


class Deadlines:
    """At most one deadline for each member, in milliseconds of the monotonic clock.

    A heartbeat moves a deadline back, which costs one entry in a dictionary. The queue has an earlier time then, and
    the member is queued anew only when that has become the first. So each heartbeat and each deadline that passes costs
    the logarithm of the number of members at most, and none is looked for among them all.

    Invariants: every member with a deadline is in ``_queued``, with a time that is not later; ``_queue`` has that
    entry, and hardly more than twice as many as there are members.
    """

    __slots__ = ("_due", "_queue", "_queued")

    def __init__(self) -> None:
        self._due: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._due

    def get(self, member_id: str) -> int | None:
        return self._due.get(member_id)

    def keys(self) -> KeysView[str]:
        """The members with a deadline."""
        return self._due.keys()

    def set(self, member_id: str, due_ms: int) -> None:
        self._due[member_id] = due_ms
        queued_ms = self._queued.get(member_id)
        if queued_ms is None or due_ms < queued_ms:
            self._enqueue(member_id, due_ms)

    def drop(self, member_id: str) -> None:
        self._due.pop(member_id, None)
        self._queued.pop(member_id, None)
        self._tidy()

    def next_ms(self) -> int:
        """The earliest deadline."""
        while self._queue:
            queued_ms, member_id = self._queue[0]
            if self._queued.get(member_id) == queued_ms == self._due[member_id]:
                return queued_ms
            self._pop()
        return NEVER_MS

    def take_late(self, now_ms: int) -> list[str]:
        """Takes out the members whose deadlines have passed."""
        late = []
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, member_id = self._queue[0]
            if self._queued.get(member_id) == queued_ms and self._due[member_id] <= now_ms:
                late.append(member_id)
                del self._queued[member_id], self._due[member_id]
            self._pop()
        return late

    def _pop(self) -> None:
        """Takes the first entry out. If it is a member's, the member is queued for its deadline."""
        queued_ms, member_id = heapq.heappop(self._queue)
        if self._queued.get(member_id) == queued_ms:
            self._enqueue(member_id, self._due[member_id])

    def _enqueue(self, member_id: str, due_ms: int) -> None:
        self._queued[member_id] = due_ms
        heapq.heappush(self._queue, (due_ms, member_id))
        self._tidy()

    def _tidy(self) -> None:
        if len(self._queue) > 2 * len(self._queued) + _MOST_LEFT:
            self._queue = [(due_ms, member_id) for member_id, due_ms in self._queued.items()]
            heapq.heapify(self._queue)
