"""Decides on a leader's request to change its ISR: the rules of
KafkaController.tryProcessAlterPartition. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from broker.protocol.alter_partition_messages import AlteredPartition, IsrChange
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState


@dataclass(frozen=True, slots=True)
class Proposal:
    """One partition of an AlterPartition request. ``isr`` maps each member to the broker epoch the leader
    knows, or to NO_EPOCH.
    """

    broker_id: int
    leader_epoch: int
    isr: Mapping[int, int]
    partition_epoch: int
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class IsrDecision:
    """The decision on a proposal: an error, or the state to write. NONE without a state means that
    nothing changes.
    """

    error: Errors
    new_state: LeaderAndIsr | None = None


def judge(
    proposal: Proposal,
    state: LeaderAndIsr | None,
    live: Collection[int],
    broker_epochs: Mapping[int, int],
    *,
    knows_ineligible: bool,
) -> IsrDecision:
    """Decides on one partition, given the controller's state and the online replicas.

    Without ``knows_ineligible`` (versions before 2) the error for a dead or restarted member
    is OPERATION_NOT_ATTEMPTED.
    """
    if state is None:
        return IsrDecision(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        return IsrDecision(Errors.NOT_CONTROLLER)  # a later controller has written the state
    if proposal.leader_epoch < state.leader_epoch:
        return IsrDecision(Errors.FENCED_LEADER_EPOCH)
    if proposal.broker_id != state.leader:
        return IsrDecision(Errors.INVALID_REQUEST)
    if set(proposal.isr) == set(state.isr) and proposal.recovery_state is state.recovery_state:
        return IsrDecision(Errors.NONE)
    if proposal.partition_epoch < state.partition_epoch:
        return IsrDecision(Errors.INVALID_UPDATE_VERSION)
    if not _is_sound(proposal, state):
        return IsrDecision(Errors.INVALID_REQUEST)
    if any(not _is_eligible(member, epoch, live, broker_epochs) for member, epoch in proposal.isr.items()):
        return IsrDecision(Errors.INELIGIBLE_REPLICA if knows_ineligible else Errors.OPERATION_NOT_ATTEMPTED)
    new_state = replace(state, isr=tuple(proposal.isr), recovery_state=proposal.recovery_state)
    return IsrDecision(Errors.NONE, new_state)


def _is_sound(proposal: Proposal, state: LeaderAndIsr) -> bool:
    """Whether the leader is in its own ISR. A recovering leader must be alone there, and cannot start
    recovering by itself.
    """
    if proposal.broker_id not in proposal.isr:
        return False
    if proposal.recovery_state is LeaderRecoveryState.RECOVERED:
        return True
    return state.recovery_state is LeaderRecoveryState.RECOVERING and len(proposal.isr) == 1


def _is_eligible(member: int, epoch: int, live: Collection[int], broker_epochs: Mapping[int, int]) -> bool:
    return member in live and epoch in {NO_EPOCH, broker_epochs.get(member, NO_EPOCH)}


def proposal_of(broker_id: int, change: IsrChange) -> Proposal | None:
    """The proposal in a broker's request, or None if its recovery state is invalid."""
    try:
        recovery_state = LeaderRecoveryState(change.leader_recovery_state)
    except ValueError:
        return None
    isr = dict(zip(change.isr, change.broker_epochs, strict=True))
    return Proposal(broker_id, change.leader_epoch, isr, change.partition_epoch, recovery_state)


def answer_of(index: int, error: Errors, state: LeaderAndIsr | None) -> AlteredPartition:
    """The row of the response for one partition."""
    if error is not Errors.NONE or state is None:
        return AlteredPartition(index, error)
    return AlteredPartition(
        index,
        error,
        state.leader,
        state.leader_epoch,
        state.isr,
        int(state.recovery_state),
        state.partition_epoch,
    )
