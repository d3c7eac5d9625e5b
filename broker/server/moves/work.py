"""Looks at the cluster, takes the next step, and looks again, until all is done or the time is over.

It may end at any point: the next run sees what is under way. `judge` decides, `admin` asks the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from broker.replication.broker_channel import ChannelError
from broker.server.moves.judge import Judgement, MovesRefusedError, Step, View, is_paused
from broker.server.moves.layout import Targets, added
from broker.zookeeper.store import StoreError

_PAUSE_S: Final = 1.0
# A broker that was killed or restarted is back by then.
_PATIENCE_S: Final = 20.0
_SILENCE_S: Final = 60.0

Decide = Callable[[View, Collection[int]], Judgement]


class MovedCluster(Protocol):
    """The cluster."""

    def look(self) -> View: ...
    def take(self, step: Step) -> list[str]: ...


class Left(NamedTuple):
    """What is still to be copied, and what it waits for."""

    replicas: int
    bytes: int
    waits: tuple[str, ...] = ()

    def words(self) -> str:
        text = f"{self.replicas} replicas, {in_words(self.bytes)} to copy" if self.replicas else "nearly done"
        more = f" and {len(self.waits) - 1} more" if len(self.waits) > 1 else ""
        return f"{text}; {self.waits[0]}{more}" if self.waits else text


class WorkDone(NamedTuple):
    """Whether all is done, whether anything was done or was under way, and what is left."""

    is_done: bool
    is_changed: bool
    left: Left


def work(
    admin: MovedCluster,
    decide: Decide,
    tell: Callable[[Left], None],
    within_s: float | None,
    pause: Callable[[float], object],
    *,
    keep: Callable[[], None] = lambda: None,
) -> WorkDone:
    """Works for at most ``within_s`` seconds. Raises what the cluster says, and what ``keep`` does if it is not our
    turn any more; brokers and ZooKeeper, if they do not answer, are asked again for a minute.
    """
    began = answered = time.monotonic()
    dead_since: dict[int, float] = {}
    is_changed, left = False, Left(0, 0)
    before: tuple[View, Step] | None = None
    while True:
        now = time.monotonic()
        try:
            view = admin.look()
            verdict = decide(view, _gone(view, dead_since, now))
            keep()
            if before is not None and is_paused(*before, view, verdict.left):
                raise MovesRefusedError(
                    "somebody has taken the moves and the throttles back. Run it again to go on"
                )
            refused = () if verdict.step.is_nothing else tuple(admin.take(verdict.step))
            answered, before = time.monotonic(), (view, verdict.step)
        except (ChannelError, StoreError):
            if time.monotonic() - answered > _SILENCE_S:
                raise
        else:
            left = _left(view, verdict, refused)
            is_changed = is_changed or not verdict.step.is_nothing or left.replicas > 0
            if verdict.is_done:
                return WorkDone(is_done=True, is_changed=is_changed, left=left)
            tell(left)
        if within_s is not None and time.monotonic() - began >= within_s:
            return WorkDone(is_done=False, is_changed=is_changed, left=left)
        pause(_PAUSE_S)


def _gone(view: View, dead_since: dict[int, float], now: float) -> set[int]:
    """The brokers that get replicas and have not run for some time."""
    layout = view.layout
    dead = {broker for found in layout.partitions.values() for broker in found.adding} - layout.racks.keys()
    for broker in dead_since.keys() - dead:
        del dead_since[broker]
    for broker in dead:
        dead_since.setdefault(broker, now)
    return {broker for broker, since in dead_since.items() if now - since >= _PATIENCE_S}


def _left(view: View, verdict: Judgement, refused: tuple[str, ...]) -> Left:
    layout = view.layout
    new = {each: found.adding for each, found in layout.partitions.items() if found.adding}
    new |= dict(_copied(view, verdict.left))
    size = sum(
        max(layout.partitions[each].size - view.held.get((each, broker), 0), 0)
        for each, brokers in new.items()
        for broker in brokers
    )
    return Left(sum(map(len, new.values())), size, (*verdict.waits, *refused))


def _copied(view: View, left: Targets) -> Targets:
    """The replicas that are to be added; or, while a broker is filled, that are not in sync."""
    partitions = view.layout.partitions
    behind = {
        each: brokers
        for each, brokers in left.items()
        if len(brokers) == 1
        and brokers[0] in partitions[each].replicas
        and brokers[0] not in partitions[each].isr
    }
    return {**added(view.layout, {k: v for k, v in left.items() if k not in behind}), **behind}


def in_words(size: float) -> str:
    """Bytes, as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
