"""A group with its lock, timer and outbox. It carries out what the pure modules decide."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

import structlog

from broker.coordinator.group.dispatch import on_time
from broker.coordinator.group.group import Group
from broker.coordinator.group.kinds import epoch_of, member_count, state_of
from broker.coordinator.group.memory import GroupMemory
from broker.coordinator.group.messages import NEVER_MS, Append, Effects, GroupLimits, Moment, Reply
from broker.coordinator.group.offsets_log import OffsetsLog
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors
from broker.utils.clock import Clock
from broker.utils.line_budget import LineBudget
from broker.utils.timer import Timer, TimerEntry

_log = structlog.get_logger(__name__)
T = TypeVar("T")
_MAX_NAME: Final = 256


class GroupCell:
    """The cell of one :class:`Group`, which it owns.

    Invariants: the group is touched only under the lock. Replies and appends run without the lock, one at a
    time, in the order of the decisions. So the last record in the log is the group's last decision. One timer
    entry serves all deadlines of the group; a heartbeat only moves a deadline back, which needs no new entry.
    After each decision the group's weight is reported to the memory.
    """

    __slots__ = (
        "_armed_ms",
        "_clock",
        "_counted",
        "_draining",
        "_entry",
        "_limits",
        "_lines",
        "_lock",
        "_memory",
        "_outbox",
        "_store",
        "_timer",
        "group",
        "partition",
    )

    def __init__(
        self,
        group: Group,
        partition: int,
        *,
        store: OffsetsLog,
        timer: Timer,
        clock: Clock,
        limits: GroupLimits,
        memory: GroupMemory,
        lines: LineBudget,
    ) -> None:
        self.group = group
        self.partition = partition
        self._store = store
        self._timer = timer
        self._clock = clock
        self._limits = limits
        self._memory = memory
        self._lines = lines
        self._counted = 0  # the part of the group's weight that was reported to the memory
        self._lock = threading.Lock()  # lock order 36
        self._outbox: list[Reply | Append] = []  # an empty deque takes ten times as much memory
        self._draining = False
        self._entry: TimerEntry | None = None
        self._armed_ms = NEVER_MS

    @property
    def is_dead(self) -> bool:
        return self.group.state is GroupState.DEAD

    def run(self, decide: Callable[[Group, Moment], Effects]) -> None:
        """Decides under the lock, then carries out the decision."""
        with self._lock:
            before = state_of(self.group)
            now = self._now()
            effects = decide(self.group, now)
            if self.group.wake_at_ms <= now.monotonic_ms:
                effects = effects + on_time(self.group, now, self._limits)
            self._rearm(now)
            after, generation_id, members = (
                state_of(self.group),
                epoch_of(self.group),
                member_count(self.group),
            )
            self._outbox.extend(effects)
            self.count()
        if before is not after:
            self._tell(before, after, generation_id, members)
        self._drain()

    def count(self) -> None:
        """Reports the group's weight to the memory. Called under the lock, or before another thread knows
        the cell.
        """
        weight = self.group.weight
        if weight != self._counted:
            self._memory.change(weight - self._counted)
            self._counted = weight

    def _tell(self, before: Enum, after: Enum, generation_id: int, members: int) -> None:
        """Logs a state change. The number of lines is limited, because clients can cause many changes
        a second.
        """
        left_out = self._lines.left_out()
        if left_out is None:
            return
        more = {"left_out": left_out} if left_out else {}
        _log.info(
            "group_state_changed",
            group=self.group.group_id[:_MAX_NAME],
            before=before.value,
            after=after.value,
            generation=generation_id,
            members=members,
            **more,
        )

    def ask(self, question: Callable[[Group, Moment], T]) -> T:
        """Answers a question that has no effects: heartbeats, descriptions, offsets."""
        with self._lock:
            now = self._now()
            answer = question(self.group, now)
            self._rearm(now)
        return answer

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _rearm(self, now: Moment) -> None:
        wake_at_ms, entry = self.group.wake_at_ms, self._entry
        if wake_at_ms == NEVER_MS:
            if entry is not None:
                entry.cancel()
                self._entry, self._armed_ms = None, NEVER_MS
        elif wake_at_ms < self._armed_ms:
            if entry is not None:
                entry.cancel()
            self._armed_ms = wake_at_ms
            self._entry = self._timer.add(wake_at_ms - now.monotonic_ms, self._on_timer)

    def _on_timer(self) -> None:
        with self._lock:
            self._entry, self._armed_ms = None, NEVER_MS
        self.run(_only_deadlines)

    def _drain(self) -> None:
        """Carries out the effects in the outbox, unless another thread is doing so: then that thread does all
        of them.
        """
        with self._lock:
            if self._draining or not self._outbox:
                return
            self._draining = True
        while True:
            with self._lock:
                effects, self._outbox = self._outbox, []
                if not effects:
                    self._draining = False
                    return
            for effect in effects:
                self._try(effect)

    def _try(self, effect: Reply | Append) -> None:
        try:
            self._perform(effect)
        except Exception:  # a failure to answer one client must not stop the other answers
            _log.exception("group_effect_failed", group=self.group.group_id, effect=type(effect).__name__)

    def _perform(self, effect: Reply | Append) -> None:
        if isinstance(effect, Reply):
            effect.respond(effect.result)
            return

        def appended(error: Errors, offset: int) -> None:
            self.run(lambda _group, now: effect.then(error, offset, now))

        earlier = Errors.NONE if effect.earlier is None else effect.earlier()
        if earlier is not Errors.NONE:
            appended(earlier, -1)
            return
        try:
            self._store.append(
                self.partition, effect.records, effect.required_acks, appended, producer=effect.producer
            )
        except Exception:
            _log.exception("group_append_failed", group=self.group.group_id, partition=self.partition)
            appended(Errors.UNKNOWN_SERVER_ERROR, -1)


def _only_deadlines(_group: Group, _now: Moment) -> Effects:
    return []
