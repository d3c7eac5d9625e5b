"""Who could lead a partition, beyond its ISR, and lose nothing that is committed. KIP-966, as far as ZooKeeper allows.

While an ISR is smaller than ``min.insync.replicas`` its partition commits nothing. So who left it at that size, or by
leaving made it so small, has every committed record for as long as it stays so: an *eligible* replica. When nobody of
the ISR lives, one of these may lead. What was acknowledged by the leader alone (acks=1) meanwhile was never committed,
and goes.

That a replica has what it had depends on its broker: one that lost its power may have forgotten the end of its logs.
So for each member its broker epoch is kept, from when it came into the ISR, and it counts only as long as the broker's
process lives. What cannot be known (states that Apache Kafka wrote, brokers that came before) makes nobody eligible.
Nor does a change of the configs that ``min.insync.replicas`` comes from: for a while it may have been lower, and
records committed without those who had left.
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
    """The epochs of the members of ``after``'s ISR: who was in it keeps its own, be it not known; who comes in, and a
    new leader, whose log is the truth from now on, has the one it lives by.
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


def epochs_eligible(before: LeaderAndIsr, after: LeaderAndIsr, replicas: Collection[int]) -> dict[int, int]:
    """Who of ``before`` is eligible in ``after``, whose ISR is smaller than it has to be. Nobody after an unclean
    election: committed is what its leader has.
    """
    if after.recovery_state is LeaderRecoveryState.RECOVERING:
        return {}
    had = _in_sync(before) | _eligible(before)
    return {member: epoch for member, epoch in had.items() if member in replicas and member not in after.isr}


def who_is_whole(eligible: Epochs, brokers: Mapping[int, LiveBroker]) -> list[int]:
    """Of eligible replicas those whose brokers live, and have since the time that is told of them."""
    return [
        broker_id
        for broker_id, epoch in eligible.items()
        if broker_id in brokers and brokers[broker_id].whole_since <= epoch
    ]


def led_though_eligible_could(
    broker_id: int, states: Mapping[TopicPartition, LeaderAndIsr], brokers: Mapping[int, LiveBroker]
) -> list[TopicPartition]:
    """Partitions led by this broker, or by nobody and with it in the ISR, that an eligible replica could lead: one
    that lives, or one that is not registered and may be on its way, for its session ended and not its process.
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
    """The controller's; runs on its thread. ``is_on`` and ``default_min_isr`` are asked each time: configs change."""

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
        """The states that are to be written, with their members' epochs. Raises StoreError."""
        if not self._is_on():
            return {tp: replace(state, epochs=None) for tp, state in states.items()}
        live = {broker_id: broker.epoch for broker_id, broker in self._context.brokers.items()}
        written = {}
        eligible = {}
        for tp, state in states.items():
            before = self._context.leaders.get(tp)
            in_sync = tuple(sorted(epochs_in_sync(before, state, live).items()))
            written[tp] = replace(state, epochs=MemberEpochs(in_sync))
            if before is not None:
                found = epochs_eligible(before, state, self._settled_replicas(tp))
                if found:
                    eligible[tp] = found
        for tp, configs in self._under_min_isr({tp: written[tp] for tp in eligible}).items():
            epochs = written[tp].epochs
            assert epochs is not None
            found_epochs = tuple(sorted(eligible[tp].items()))
            written[tp] = replace(written[tp], epochs=replace(epochs, eligible=found_epochs, configs=configs))
        return written

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[int]]:
        """Replicas that may lead partitions of whose ISR nobody lives, those that have such only. Raises StoreError."""
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
        """Without those that a move adds: they may have been replicas before, and have nothing of it any more."""
        assignment = self._context.assignment(tp)
        if assignment is None:
            return ()
        return tuple(broker_id for broker_id in assignment.replicas if broker_id not in assignment.adding)

    def _under_min_isr(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, str]:
        """Partitions with an ISR smaller than asked for, and the version of the configs that ask."""
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
