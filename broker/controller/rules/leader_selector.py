"""Chooses leaders: Kafka's election algorithms (PartitionLeaderElectionAlgorithms). Pure.

Every function takes the partition's current state and returns the state to write, or None if no replica can
be elected or nothing changes. A new state has the next leader epoch. It keeps the partition epoch, which the
conditional write expects. Two invariants: **a follower out of the ISR becomes leader only by an unclean
election that the topic's config allows, and an ISR is never emptied.**
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum

from broker.protocol.epochs import NO_LEADER
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState


class Election(Enum):
    """The reason for an election."""

    OFFLINE = "offline"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    REASSIGN = "reassign"
    UNCLEAN = "unclean, asked for"


def initial_state(
    replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state of a new partition: the first live replica leads and all live replicas are in sync, as there
    is no data yet.
    """
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
    """Elects the first live ISR member in assignment order. If there is none, elects the first live
    ``eligible`` replica (KIP-966). If there is none either and ``unclean_allowed``, elects the first
    live replica.

    In the last two cases the leader is alone in the ISR. After an unclean election it is
    recovering (KIP-704).
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
    """Elects the first replica of the assignment if it is alive, in sync and not leading already."""
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
    """Elects the first in-sync replica that stays. Replicas that are shutting down leave the ISR, so that
    they delay no write.
    """
    staying = [replica for replica in live if replica not in shutting_down]
    leader = _first(replicas, staying, state.isr)
    if leader is None:
        return None
    isr = tuple(replica for replica in state.isr if replica not in shutting_down)
    return _next(state, leader, isr, controller_epoch)


def elect_reassign(
    state: LeaderAndIsr, target: Sequence[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """Elects a leader for the replicas that remain after a reassignment: the current leader if it is alive
    and remains, otherwise the first live in-sync replica.

    The leader epoch rises in either case, because the leader has to learn the new set of replicas.
    """
    stays = state.leader in target and state.leader in live
    leader = state.leader if stays else _first(target, live, state.isr)
    return None if leader is None else _next(state, leader, state.isr, controller_epoch)


def raise_epoch(state: LeaderAndIsr, replicas: Collection[int], controller_epoch: int) -> LeaderAndIsr:
    """Keeps the leader but raises the epoch, so that all brokers take the new set of replicas.

    A broker that is no longer a replica (its controller died while removing it) leaves the ISR, unless the
    ISR would become empty.
    """
    isr = tuple(replica for replica in state.isr if replica in replicas) or state.isr
    return _next(state, state.leader, isr, controller_epoch)


def remove_from_isr(
    state: LeaderAndIsr, removed: Collection[int], live: Collection[int], controller_epoch: int
) -> LeaderAndIsr | None:
    """Takes offline replicas out of the ISR. If the leader is among them, the partition has no leader.

    If no live replica would remain, the ISR is kept: every member has every committed record, so any of them
    may lead again. (Kafka keeps only the replica that it happens to process last.)
    """
    isr = tuple(replica for replica in state.isr if replica not in removed)
    if not any(replica in live for replica in isr):
        isr = state.isr
    leader = NO_LEADER if state.leader in removed else state.leader
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _next(state, leader, isr, controller_epoch)


def imbalanced(led_by: Sequence[tuple[int, int]], percentage: int) -> list[int]:
    """Positions of the partitions whose preferred leader leads too few of the partitions it should lead.

    ``led_by`` has ``(preferred, leader)`` for each partition. A broker counts if other brokers lead more than
    ``percentage`` per cent of the partitions it should lead (``leader.imbalance.per.broker.percentage``).
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
