"""Finds replicas outside the ISR that can lead without losing committed records. KIP-966, as far as
ZooKeeper allows.

While the ISR is smaller than ``min.insync.replicas``, the partition commits nothing. So a replica that leaves
the ISR at that size, or whose leaving makes it that small, has every committed record until the ISR grows
again. It is an *eligible* replica, and may lead when no member of the ISR is alive. Records that only the
leader acknowledged meanwhile (acks=1) were never committed, and are lost.

A broker that lost power may have lost the end of its logs. So each ISR member is stored with its broker epoch
from when it joined the ISR, and it counts only while that broker process lives. Unknown epochs (states
written by Apache Kafka or by brokers of earlier versions) make no replica eligible. After a change of the
configs that determine ``min.insync.replicas`` no replica is eligible either: the value may have been lower
for a while, and records may have been committed without the replicas that had left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from broker.controller.context import ControllerContext
from broker.protocol.epochs import NO_LEADER
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.znodes import (
    LeaderAndIsr,
    LeaderRecoveryState,
    LiveBroker,
    MemberEpochs,
)

Epochs = Mapping[int, int]


def epochs_in_sync(before: LeaderAndIsr | None, after: LeaderAndIsr, live: Epochs) -> dict[int, int]:
    """The broker epochs of the members of ``after``'s ISR. Members that stayed keep their epoch, even if it
    is unknown. Members that joined get their current epoch, and so does a new leader, because its log is the
    truth from now on.
    """
    known = _in_sync(before)
    stayed = () if before is None else before.isr
    found = {}
    for member in after.isr:
        leads_anew = member == after.leader and (before is None or before.leader != member)
        epoch = live.get(member) if leads_anew or member not in stayed else known.get(member)
        if epoch is not None:
            found[member] = epoch
    return found


def epochs_eligible(
    before: LeaderAndIsr, after: LeaderAndIsr, replicas: Collection[int], configs: str
) -> dict[int, int]:
    """The eligible replicas, with epochs, when ``after``'s ISR is smaller than required. There are none after
    an unclean election, because then only the new leader's records count as committed.

    ``configs``: the version of the configs that require it. Who was eligible under another one is no more: only the
    members of the ISR have what was committed meanwhile.
    """
    if after.recovery_state is LeaderRecoveryState.RECOVERING:
        return {}
    had = _in_sync(before)
    if configs == _configs(before):
        had |= _eligible(before)
    return {member: epoch for member, epoch in had.items() if member in replicas and member not in after.isr}


def who_is_whole(eligible: Epochs, brokers: Mapping[int, LiveBroker]) -> list[int]:
    """The eligible replicas whose brokers are alive and have lost nothing since the stored epoch."""
    return [
        broker_id
        for broker_id, epoch in eligible.items()
        if broker_id in brokers and brokers[broker_id].whole_since <= epoch
    ]


def led_though_eligible_could(
    broker_id: int, states: Mapping[TopicPartition, LeaderAndIsr], brokers: Mapping[int, LiveBroker]
) -> list[TopicPartition]:
    """Partitions that an eligible replica could lead instead of this broker. The leader is this broker, or
    there is none and this broker is in the ISR. The eligible replica is alive, or unregistered and possibly
    about to return, because its session ended but not its process.
    """

    def could_lead(other: int, epoch: int) -> bool:
        return other != broker_id and (other not in brokers or bool(who_is_whole({other: epoch}, brokers)))

    return [
        tp
        for tp, state in states.items()
        if state.leader in {broker_id, NO_LEADER}
        and broker_id in state.isr
        and any(could_lead(other, epoch) for other, epoch in _eligible(state).items())
    ]


class EligibleReplicas:
    """The eligible replicas of all partitions. It runs on the controller's thread. ``is_on`` and
    ``default_min_isr`` are called each time, because configs change.
    """

    def __init__(
        self,
        context: ControllerContext,
        cluster: ClusterStore,
        is_on: Callable[[], bool],
        default_min_isr: Callable[[], int],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._is_on = is_on
        self._default_min_isr = default_min_isr

    def noted(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, LeaderAndIsr]:
        """The given states, ready to be written, with their members' epochs. Raises StoreError."""
        if not self._is_on():
            return {tp: replace(state, epochs=None) for tp, state in states.items()}
        live = {broker_id: broker.epoch for broker_id, broker in self._context.brokers.items()}
        written = {}
        possible: dict[TopicPartition, LeaderAndIsr] = {}
        for tp, state in states.items():
            before = self._context.leaders.get(tp)
            in_sync = tuple(sorted(epochs_in_sync(before, state, live).items()))
            written[tp] = replace(state, epochs=MemberEpochs(in_sync))
            if before is not None and epochs_eligible(
                before, state, self._settled_replicas(tp), _configs(before)
            ):
                possible[tp] = before
        for tp, configs in self._under_min_isr({tp: written[tp] for tp in possible}).items():
            epochs = written[tp].epochs
            assert epochs is not None
            found = epochs_eligible(possible[tp], states[tp], self._settled_replicas(tp), configs)
            if found:
                eligible = tuple(sorted(found.items()))
                written[tp] = replace(written[tp], epochs=replace(epochs, eligible=eligible, configs=configs))
        return written

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[int]]:
        """The replicas that may lead, for those partitions without a live ISR member that have some.
        Raises StoreError.
        """
        if not self._is_on():
            return {}
        found = {}
        for tp in partitions:
            state = self._context.leaders[tp]
            settled = self._settled_replicas(tp)
            whole = who_is_whole(_eligible(state), self._context.brokers)
            if candidates := [broker_id for broker_id in whole if broker_id in settled]:
                found[tp] = candidates
        under = self._under_min_isr({tp: self._context.leaders[tp] for tp in found})
        return {
            tp: candidates
            for tp, candidates in found.items()
            if (epochs := self._context.leaders[tp].epochs) is not None and under.get(tp) == epochs.configs
        }

    def _settled_replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        """The replicas without those that a reassignment adds: an added replica may have been one before and
        have lost its log.
        """
        assignment = self._context.assignment(tp)
        if assignment is None:
            return ()
        return tuple(broker_id for broker_id in assignment.replicas if broker_id not in assignment.adding)

    def _under_min_isr(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, str]:
        """The partitions whose ISR is smaller than required, each with the version of the configs that
        require it.
        """
        if not states:
            return {}
        topics = sorted({tp.topic for tp in states})
        asked = self._cluster.min_insync_replicas(topics, self._default_min_isr())
        under = {}
        for tp, state in states.items():
            least, configs = asked[tp.topic]
            if len(state.isr) < min(least, len(self._context.replicas(tp))):
                under[tp] = configs
        return under


def _in_sync(state: LeaderAndIsr | None) -> dict[int, int]:
    return {} if state is None or state.epochs is None else dict(state.epochs.in_sync)


def _eligible(state: LeaderAndIsr) -> dict[int, int]:
    return {} if state.epochs is None else dict(state.epochs.eligible)


def _configs(state: LeaderAndIsr) -> str:
    return "" if state.epochs is None else state.epochs.configs
