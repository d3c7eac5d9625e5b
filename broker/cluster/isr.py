"""The rules of the in-sync replica set (ISR) and the high watermark; pure functions.

The rules are Kafka 3.9's (KIP-497, KIP-966's first part):

- A change is *pending* from the moment it is sent to the controller until the controller's answer. While one
  is pending, no other begins.
- The high watermark counts the *maximal* ISR: the committed one and every replica about to join, but not
  without those about to leave. So whatever the controller decides, each member of the ISR has every record
  below it.
- The high watermark does not advance while the ISR is smaller than min.insync.replicas, and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.cluster.replica import FollowerState
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import UNKNOWN_OFFSET

# Errors that mean this leader is outdated. The change stays pending until the controller's
# LeaderAndIsr arrives.
WAIT_FOR_CONTROLLER: Final = frozenset(
    {
        Errors.FENCED_LEADER_EPOCH,
        Errors.INVALID_UPDATE_VERSION,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.INVALID_REQUEST,
        Errors.NEW_LEADER_ELECTED,
    }
)


@dataclass(frozen=True, slots=True)
class IsrState:
    """A partition's ISR and the change to it that waits for the controller, if any; Kafka's
    PartitionState. ``committed`` is the ISR in ZooKeeper, ``proposed`` the requested one. The Partition
    holds the current state.
    """

    committed: frozenset[int]
    proposed: frozenset[int] | None = None

    @property
    def is_pending(self) -> bool:
        return self.proposed is not None

    @property
    def maximal(self) -> frozenset[int]:
        """Every replica that may be in the ISR once the pending change is decided."""
        return self.committed if self.proposed is None else self.committed | self.proposed

    @property
    def certain(self) -> frozenset[int]:
        """Every replica that is in the ISR whatever the controller decides about the pending change."""
        return self.committed if self.proposed is None else self.committed & self.proposed

    def propose(self, isr: frozenset[int]) -> IsrState:
        if self.is_pending:
            raise ValueError(f"ISR change to {sorted(isr)} while {self} is pending")
        return IsrState(self.committed, isr)

    def rolled_back(self) -> IsrState:
        return IsrState(self.committed)


class Shortage(NamedTuple):
    """An ISR smaller than ``required``, which is min.insync.replicas, but at most the number of replicas."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    required: int

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        return tuple(broker_id for broker_id in self.replicas if broker_id not in self.isr)

    def __str__(self) -> str:
        return (
            f"{len(self.isr)} of {len(self.replicas)} replicas are in sync (ISR {list(self.isr)}, missing "
            f"{list(self.missing)}), acks=all needs {self.required} (min.insync.replicas)"
        )


class NotEnoughReplicasError(KafkaError):
    """NOT_ENOUGH_REPLICAS, with the replicas that are in sync and those that are not."""

    def __init__(self, partition: object, shortage: Shortage) -> None:
        super().__init__(Errors.NOT_ENOUGH_REPLICAS, f"{partition}: {shortage}")
        self.shortage = shortage


def out_of_sync_replicas(
    isr: Iterable[int],
    followers: Mapping[int, FollowerState],
    leader_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
) -> frozenset[int]:
    """ISR members behind the leader's end that did not catch up within ``replica.lag.time.max.ms``."""
    return frozenset(
        broker_id
        for broker_id in isr
        if (follower := followers.get(broker_id)) is not None
        and follower.log_end_offset != leader_end_offset
        and now_ms - follower.last_caught_up_ms > max_lag_ms
    )


def behind_ms(
    isr: Iterable[int], followers: Mapping[int, FollowerState], leader_end_offset: int, now_ms: int
) -> dict[int, int]:
    """How long each follower in the ISR has been behind the leader's end; 0 if it is not behind."""
    return {
        broker_id: max(now_ms - follower.last_caught_up_ms, 0)
        if follower.log_end_offset < leader_end_offset
        else 0
        for broker_id in isr
        if (follower := followers.get(broker_id)) is not None
    }


def may_join(follower: FollowerState, high_watermark: int, leader_epoch_start_offset: int) -> bool:
    """Whether a follower has all committed records and all records from before this leader's term."""
    return follower.log_end_offset >= high_watermark and follower.log_end_offset >= leader_epoch_start_offset


def next_high_watermark(
    current: int,
    leader_end_offset: int,
    state: IsrState,
    followers: Mapping[int, FollowerState],
    *,
    min_isr: int,
    now_ms: int,
    max_lag_ms: int,
    may_come: Callable[[int], bool],
) -> int:
    """The high watermark that the replicas' positions allow, never below ``current``.

    It counts the maximal ISR, and caught-up followers on a live broker (``may_come``), which are about to
    join. Otherwise the high watermark could stay ahead of such a follower forever, and it would never join.
    """
    if len(state.committed) < min_isr and len(state.committed) < len(followers) + 1:
        return current
    if not followers:
        return max(leader_end_offset, current)
    mark = leader_end_offset
    maximal = state.maximal
    for broker_id, follower in followers.items():
        counts = broker_id in maximal or (
            follower.log_end_offset != UNKNOWN_OFFSET
            and now_ms - follower.last_caught_up_ms <= max_lag_ms
            and may_come(broker_id)
        )
        if counts and follower.log_end_offset < mark:
            mark = follower.log_end_offset
    return max(mark, current)
