"""Who leads a partition: Kafka's election algorithms (PartitionLeaderElectionAlgorithms). Pure.

Every function takes the partition's present state and returns the state to be written, or None when nobody
can be elected or nothing is to change. A new state has the next leader epoch and keeps the partition epoch
that the write must find. Two invariants: **a follower out of the ISR becomes leader only by an unclean
election that the topic's config allows, and an ISR is never emptied.**
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum

from broker.protocol.epochs import NO_LEADER
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState


class Election(Enum):
    """Why a leader is looked for."""

    OFFLINE = "offline"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    REASSIGN = "reassign"
    UNCLEAN = "unclean, asked for"


def initial_state(
    replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """A new partition is led by its first live replica; all live ones are in sync, there being no data."""
    isr = tuple(replica for replica in replicas if replica in live)
    if not isr:
        return None
    return LeaderAndIsr(isr[0], 0, isr, controller_epoch)


def elect_offline(
    state: LeaderAndIsr,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    *,
    unclean_allowed: bool,
    eligible: Collection[int] = (),
) -> LeaderAndIsr | None:
    """The first live replica of the ISR in assignment order; if there is none, the first ``eligible`` one that lives
    (KIP-966); if there is none and it is allowed, the first live one.

    The latter two are alone in the ISR; after an unclean election the leader is recovering (KIP-704).
    """
    leader = _first(replicas, live, state.isr)
    if leader is not None:
        isr = tuple(replica for replica in state.isr if replica in live)
        return _next(state, leader, isr, controller_epoch)
    leader = _first(replicas, live, eligible)
    if leader is not None:
        return _next(state, leader, (leader,), controller_epoch)
    if not unclean_allowed:
        return None
    leader = _first(replicas, live, replicas)
    if leader is None:
        return None
    elected = _next(state, leader, (leader,), controller_epoch)
    return replace(elected, recovery_state=LeaderRecoveryState.RECOVERING)


def elect_preferred(
    state: LeaderAndIsr, replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The first replica of the assignment, if it lives and is in sync and does not lead already."""
    preferred = replicas[0]
    if preferred == state.leader or preferred not in live or preferred not in state.isr:
        return None
    return _next(state, preferred, state.isr, controller_epoch)


def elect_controlled_shutdown(
    state: LeaderAndIsr,
    replicas: Sequence[int],
    live: Collection[int],
    shutting_down: Collection[int],
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """The first in-sync replica that stays; those that go leave the ISR, so that they hold nobody up."""
    staying = [replica for replica in live if replica not in shutting_down]
    leader = _first(replicas, staying, state.isr)
    if leader is None:
        return None
    isr = tuple(replica for replica in state.isr if replica not in shutting_down)
    return _next(state, leader, isr, controller_epoch)


def elect_reassign(
    state: LeaderAndIsr, target: Sequence[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The first live in-sync replica of those that a reassignment leaves; the present leader if it is one of them.

    The leader epoch rises in either case: the leader has to learn who is a replica from now on.
    """
    stays = state.leader in target and state.leader in live
    leader = state.leader if stays else _first(target, live, state.isr)
    return None if leader is None else _next(state, leader, state.isr, controller_epoch)


def raise_epoch(state: LeaderAndIsr, replicas: Collection[int], controller_epoch: int) -> LeaderAndIsr:
    """The same leader with the next epoch, so that everybody takes the new set of replicas.

    Who is no replica any more (its controller died while it dropped it) leaves the ISR, unless nobody else is in it.
    """
    isr = tuple(replica for replica in state.isr if replica in replicas) or state.isr
    return _next(state, state.leader, isr, controller_epoch)


def remove_from_isr(
    state: LeaderAndIsr, removed: Collection[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """Takes offline replicas out of the ISR, and the leadership from a leader among them.

    When no live replica would be left, the ISR stays as it is: every member has every committed record, so
    any of them may lead again. (Kafka keeps only the one it happens to come to last.)
    """
    isr = tuple(replica for replica in state.isr if replica not in removed)
    if not any(replica in live for replica in isr):
        isr = state.isr
    leader = NO_LEADER if state.leader in removed else state.leader
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _next(state, leader, isr, controller_epoch)


def imbalanced(led_by: Sequence[tuple[int, int]], percentage: int) -> list[int]:
    """Positions of the partitions whose preferred leader leads too few of its own.

    ``led_by`` has ``(preferred, leader)`` for each partition; a broker counts when more than ``percentage``
    per cent of the partitions it should lead are led by others (``leader.imbalance.per.broker.percentage``).
    """
    wanted: dict[int, list[int]] = {}
    astray: dict[int, list[int]] = {}
    for position, (preferred, leader) in enumerate(led_by):
        wanted.setdefault(preferred, []).append(position)
        if preferred != leader:
            astray.setdefault(preferred, []).append(position)
    return sorted(
        position
        for broker, positions in astray.items()
        if 100 * len(positions) > percentage * len(wanted[broker])
        for position in positions
    )


def _first(replicas: Sequence[int], live: Collection[int], among: Collection[int]) -> int | None:
    return next((replica for replica in replicas if replica in live and replica in among), None)


def _next(state: LeaderAndIsr, leader: int, isr: tuple[int, ...], controller_epoch: int) -> LeaderAndIsr:
    return replace(
        state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch
    )
