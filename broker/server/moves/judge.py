"""What to do next to a cluster whose partitions move, by what is seen of it. Pure.

All state is the cluster's: moves under way and throttles. So a run that died at any point is resumed by any other one,
and each look may be the first. Moves that others began are never changed; their partitions count as moved. Two runs of
ours at once would undo each other: `turn` lets one in at a time.

A step's parts are done in this order: moves taken back, throttled replicas, rate, moves. Throttles are taken away in
the reverse order, so that lists without any rate are what a run left that died then, and a rate without lists is an
operator's own. A run whose rate is taken away, with moves left, was paused by somebody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.server.moves.layout import Ids, Layout, PlacedPartition, Targets, Wish, added, of_brokers
from broker.server.moves.planner import plan
from broker.server.moves.throttles import (
    ThrottledPairs,
    Throttles,
    with_filled,
    with_pairs,
    without_pairs,
)
from broker.utils.topic_partition import TopicPartition

_REORDERED_AT_ONCE: Final = 200


class Pace(NamedTuple):
    """How moves are done: ``rate`` in bytes per second for each broker as leader and as follower, and so many moves
    ``at_once`` to each broker.
    """

    rate: int
    at_once: int = 10


class View(NamedTuple):
    """What is seen of a cluster. ``unsettled`` partitions were seen with other replicas a moment ago: brokers learn a
    moment late that a move is done. ``held`` is how many bytes a broker has of a replica.
    """

    layout: Layout
    throttles: Throttles
    unsettled: frozenset[TopicPartition] = frozenset()
    held: Mapping[tuple[TopicPartition, int], int] = {}


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now. ``rate`` is the cluster's rate to set, 0 to remove it, None to leave it. Without anything to do,
    the work is done, or something is waited for.
    """

    lists: Mapping[str, ThrottledPairs] = field(default_factory=dict)
    rate: int | None = None
    moves: Targets = field(default_factory=dict)
    cancelled: tuple[TopicPartition, ...] = ()
    elected: tuple[TopicPartition, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return not (self.lists or self.rate is not None or self.moves or self.cancelled or self.elected)


class Judgement(NamedTuple):
    """The step, whether all is done, what is still to be moved, and what is waited for."""

    step: Step
    is_done: bool
    left: Targets
    waits: tuple[str, ...] = ()


class MovesRefusedError(Exception):
    """Why nothing is begun."""


def refuse_foreign_throttles(throttles: Throttles) -> None:
    """Raises :class:`MovesRefusedError` if an operator's own throttles would be overwritten."""
    if throttles.of_all_replicas:
        raise MovesRefusedError(
            f"*.replication.throttled.replicas is * of {_few(throttles.of_all_replicas)}: remove that config first"
        )
    if throttles.is_on and not throttles.lists:
        raise MovesRefusedError(
            "the cluster has a leader. or follower.replication.throttled.rate that belongs to no move: "
            f"{throttles.leader_rate}, {throttles.follower_rate}. Remove it first; --pause does"
        )


def judge(view: View, wish: Wish, pace: Pace, gone: Collection[int] = ()) -> Judgement:
    """The next step towards the layout that is wished for. Moves of ours to brokers in ``gone`` are given up.
    Raises TooFewError if a drained broker's replicas have no place.
    """
    layout, throttles = view.layout, view.throttles
    moving = {partition: found for partition, found in layout.partitions.items() if found.is_moving}
    ours = {partition: found for partition, found in moving.items() if throttles.is_ours(partition, found)}
    hopeless = tuple(partition for partition, found in ours.items() if not set(gone).isdisjoint(found.adding))
    if hopeless:
        return Judgement(Step(cancelled=hopeless), is_done=False, left={})
    left = plan(layout, wish, fixed=moving.keys() | view.unsettled)
    new = added(layout, left)
    moves, waits = _startable(layout, left, new, ours, pace.at_once)
    if moves:
        filled = throttles.filled(layout.partitions)
        throttled = [
            (each, () if each in filled else layout.partitions[each].replicas, new[each]) for each in moves
        ]
        rate = pace.rate if _differs(throttles, pace.rate) else None
        return Judgement(
            Step(with_pairs(throttles.lists, throttled), rate, moves), is_done=False, left=left, waits=waits
        )
    if ours or new:
        rate = pace.rate if ours and _differs(throttles, pace.rate) else None
        return Judgement(Step(rate=rate), is_done=False, left=left, waits=(*waits, *_holders(layout, ours)))
    return _finish(view, wish, left)


def _finish(view: View, wish: Wish, left: Targets) -> Judgement:
    """Nothing is to be copied any more: throttles go, then the order of replicas changes, then leaders."""
    layout, throttles = view.layout, view.throttles
    waits = [f"{each} is being moved by somebody else" for each in of_brokers(layout, wish.drained)]
    step = untied(throttles, layout.partitions)
    if step.is_nothing and left:
        behind = [each for each in left if not _is_in_sync(layout.partitions[each], layout)]
        waits += [f"{each} is not in sync" for each in behind]
        ready = [each for each in left if each not in behind][:_REORDERED_AT_ONCE]
        step = Step(moves={each: left[each] for each in ready})
    elif step.is_nothing:
        step = Step(elected=_elections(layout, wish))
    is_done = step.is_nothing and not left and not waits and not view.unsettled
    return Judgement(step, is_done, left, (*waits, *_kept(view)))


def pause(view: View, *, by_whoever: bool = True) -> Judgement:
    """The next step towards a cluster without moves of ours, and without throttles. Unless ``by_whoever``, throttles
    that no move of ours needs stay: an operator's own, and those of a broker that is filled.
    """
    layout, throttles = view.layout, view.throttles
    ours = tuple(each for each, found in layout.partitions.items() if throttles.is_ours(each, found))
    if ours:
        keeps = not by_whoever and throttles.filled(layout.partitions)
        return Judgement(Step(rate=None if keeps else 0, cancelled=ours), is_done=False, left={})
    step = untied(throttles, layout.partitions, by_whoever=by_whoever)
    is_done = step.is_nothing and not view.unsettled
    return Judgement(step, is_done, left={}, waits=() if by_whoever else _kept(view))


def untied(
    throttles: Throttles, partitions: Mapping[TopicPartition, PlacedPartition], *, by_whoever: bool = False
) -> Step:
    """Takes the throttles away, the rate first. Unless ``by_whoever``, what is copied under it and an operator's own
    rate stay.
    """
    moving = [each for each, found in partitions.items() if found.is_moving]
    filled = {} if by_whoever else throttles.filled(partitions)
    is_needed = filled or any(throttles.is_ours(each, partitions[each]) for each in moving)
    if throttles.is_on and not is_needed and (by_whoever or throttles.lists):
        return Step(rate=0)
    if throttles.own_rates or (throttles.is_on and not throttles.lists):
        return Step()  # pairs of somebody whose throttle is in force
    return Step(lists=without_pairs(throttles.lists, moving, filled))


def _kept(view: View) -> tuple[str, ...]:
    """Whose throttle stays, in words."""
    throttles = view.throttles
    filled = throttles.filled(view.layout.partitions) if throttles.is_on else {}
    names = sorted(map(str, filled))
    return (f"the throttle of {_few(names)} stays until it is in sync",) if filled else ()


def is_paused(before: View, step: Step, now: View, left: Targets) -> bool:
    """Whether somebody took the rate away since the look before, after which ``step`` was taken."""
    was_on = (before.throttles.is_on and step.rate != 0) or bool(step.rate)
    return was_on and not now.throttles.is_on and bool(left)


def fill(view: View, broker: int, pace: Pace, *, is_prepared: bool) -> Judgement:
    """The next step while an empty broker gets its replicas back, throttled as a follower. With ``is_prepared`` only
    the throttle is set, before the broker starts. Raises :class:`MovesRefusedError` if records would be lost.
    """
    layout, throttles = view.layout, view.throttles
    lacking = [
        partition
        for partition, found in layout.partitions.items()
        if broker in found.replicas and broker not in found.isr
    ]
    if is_prepared:
        _refuse_loss(layout, broker)
    if not lacking or (is_prepared and broker in layout.racks):
        step = Step() if is_prepared else untied(throttles, layout.partitions)
        return Judgement(step, is_done=step.is_nothing, left={}, waits=_kept(view))
    moving = {partition for partition, found in layout.partitions.items() if found.is_moving}
    lists = with_filled(throttles.lists, broker, lacking, moving)
    step = Step(lists, pace.rate if _differs(throttles, pace.rate) else None)
    waits = () if broker in layout.racks or is_prepared else (f"broker {broker} does not run",)
    left = {} if is_prepared else dict.fromkeys(lacking, (broker,))
    return Judgement(step, is_done=is_prepared and step.is_nothing, left=left, waits=waits)


def _refuse_loss(layout: Layout, broker: int) -> None:
    lost = [
        str(partition)
        for partition, found in sorted(layout.partitions.items())
        if broker in found.replicas and (found.leader < 0 or found.isr <= {broker})
    ]
    if lost and broker not in layout.racks:
        raise MovesRefusedError(
            f"only broker {broker} has all records of {_few(lost)}: an empty one in its place would lose them. Bring "
            "its disk back. If they are lost, delete these topics, or elect another replica by "
            "kafka-leader-election.sh --election-type unclean"
        )


def _startable(
    layout: Layout,
    left: Targets,
    new: Mapping[TopicPartition, Ids],
    ours: Mapping[TopicPartition, PlacedPartition],
    at_once: int,
) -> tuple[dict[TopicPartition, Ids], tuple[str, ...]]:
    """The moves to begin now, at most so many to each broker, and why others have to wait."""
    busy = Counter(broker for found in ours.values() for broker in found.adding)
    moves: dict[TopicPartition, Ids] = {}
    waits: list[str] = []
    for partition, brokers in new.items():
        kept = [broker for broker in left[partition] if broker not in brokers]
        why = _why_not(layout.partitions[partition], kept, layout)
        if why is not None:
            waits.append(f"{partition} {why}")
        elif all(busy[broker] < at_once for broker in brokers):
            busy.update(brokers)
            moves[partition] = left[partition]
    return moves, tuple(waits)


def _why_not(found: PlacedPartition, kept: Iterable[int], layout: Layout) -> str | None:
    if found.leader < 0:
        return "has no leader"
    behind = [broker for broker in kept if broker not in found.isr]
    if behind:
        down = [broker for broker in behind if broker not in layout.racks]
        return (
            f"waits for broker {down[0]}, which does not run"
            if down
            else f"waits for broker {behind[0]} to be in sync"
        )
    return None


def _holders(layout: Layout, ours: Mapping[TopicPartition, PlacedPartition]) -> tuple[str, ...]:
    down = {broker for found in ours.values() for broker in found.replicas if broker not in layout.racks}
    return tuple(f"broker {broker} does not run" for broker in sorted(down))


def _is_in_sync(found: PlacedPartition, layout: Layout) -> bool:
    return found.leader >= 0 and all(
        broker in found.isr and broker in layout.racks for broker in found.replicas
    )


def _elections(layout: Layout, wish: Wish) -> tuple[TopicPartition, ...]:
    """The partitions whose preferred leader could lead and does not. A drain leaves leaders alone."""
    if wish.only_drain:
        return ()
    return tuple(
        partition
        for partition, found in sorted(layout.partitions.items())
        if found.leader != found.replicas[0]
        and found.leader >= 0
        and not found.is_moving
        and found.replicas[0] in found.isr
        and found.replicas[0] in layout.racks
    )


def _differs(throttles: Throttles, rate: int) -> bool:
    return (throttles.leader_rate, throttles.follower_rate) != (rate, rate)


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
