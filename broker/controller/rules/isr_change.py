"""What becomes of a leader's wish to change its ISR: the rules of KafkaController.tryProcessAlterPartition.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.protocol import codec
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState

NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """One partition of an AlterPartition request. ``isr`` maps each member to the epoch it was known by, or
    -1.
    """

    broker_id: int
    leader_epoch: int
    isr: Mapping[int, int]
    partition_epoch: int
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class IsrDecision:
    """An error, or the state to be written; NONE without a state: it is so already."""

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
    """Decides on one partition, from the controller's state of it and the replicas that are online.

    ``knows_ineligible``: versions before 2 have OPERATION_NOT_ATTEMPTED for a member that is dead or reborn.
    """
    if state is None:
        return IsrDecision(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        return IsrDecision(Errors.NOT_CONTROLLER)  # another controller has written: this one is behind
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
    """The leader is in its own ISR; a recovering one is alone there, and nobody begins to by itself."""
    if proposal.broker_id not in proposal.isr:
        return False
    if proposal.recovery_state is LeaderRecoveryState.RECOVERED:
        return True
    return state.recovery_state is LeaderRecoveryState.RECOVERING and len(proposal.isr) == 1


def _is_eligible(member: int, epoch: int, live: Collection[int], broker_epochs: Mapping[int, int]) -> bool:
    return member in live and epoch in {NO_BROKER_EPOCH, broker_epochs.get(member, NO_BROKER_EPOCH)}


def proposal_of(broker_id: int, partition: Any) -> Proposal | None:
    """From a decoded request's partition of any version; None when its recovery state is no such thing."""
    members = codec.get(partition, "new_isr_with_epochs")
    if members is None:
        isr = dict.fromkeys(partition.new_isr, NO_BROKER_EPOCH)
    else:
        isr = {int(member.broker_id): int(member.broker_epoch) for member in members}
    try:
        recovery_state = LeaderRecoveryState(int(codec.get(partition, "leader_recovery_state", 0)))
    except ValueError:
        return None
    return Proposal(broker_id, partition.leader_epoch, isr, partition.partition_epoch, recovery_state)


def response_fields(partition_index: int, error: Errors, state: LeaderAndIsr | None) -> Fields:
    """A response's partition: on an error its other fields mean nothing."""
    if error is not Errors.NONE or state is None:
        state = LeaderAndIsr(0, 0, (), 0, partition_epoch=0)
    return {
        "partition_index": partition_index,
        "error_code": error,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "leader_recovery_state": int(state.recovery_state),
        "partition_epoch": state.partition_epoch,
    }
