"""Decides whether the cluster tolerates the stop of one broker, and whether a restarted one is back. Pure.

Only partitions of that broker are judged: its stop cannot harm others. A replica counts if it is in the ISR,
registered, and responds. So a host that is permanently off prevents no stop as long as `min.insync.replicas`
holds without it. A hung broker does not count, even if its ZooKeeper session is still alive. An unregistered
broker may always be stopped: the cluster already runs without it, and a restart may repair it. `stop_view`
reads the state that is judged here, `may_stop` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.protocol.epochs import NO_CONTROLLER
from broker.utils.topic_partition import TopicPartition

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A registered broker. ``silence`` is why it did not respond, None if it did. ``controller_id`` is the
    controller in its metadata, None if it was not asked or did not respond; ``knows`` are the brokers there.
    ``listeners`` are the names of its advertised listeners.
    """

    broker_id: int
    epoch: int
    session_id: int
    address: str
    silence: str | None = None
    cluster_id: str | None = None
    controller_id: int | None = None
    listeners: frozenset[str] = frozenset()
    knows: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of the broker in question. ``replicas`` excludes those that are being added. ``min_isr``
    is 0 if it cannot be read, ``leader`` is -1 if there is none.
    """

    partition: TopicPartition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    min_isr: int


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state of ZooKeeper and the brokers at one moment. ``controller_id`` is -1 if there is none."""

    cluster_id: str | None
    controller_id: int
    members: Mapping[int, RegisteredBroker]
    partitions: Sequence[PartitionView]

    def serves(self, broker_id: int) -> bool:
        """Whether the broker is registered and responds."""
        member = self.members.get(broker_id)
        return member is not None and member.silence is None


@dataclass(frozen=True, slots=True)
class OwnBroker:
    """What the host knows about its broker; None for what its data directories do not contain."""

    broker_id: int
    cluster_id: str | None
    session_id: int | None


def why_another_cluster(view: ClusterSnapshot, own: OwnBroker) -> str | None:
    """Why ZooKeeper belongs to another cluster than this broker's data; None if nothing indicates that."""
    if own.cluster_id in {None, view.cluster_id}:
        return None
    found = "no cluster" if view.cluster_id is None else f"cluster {view.cluster_id}"
    return (
        f"broker {own.broker_id} has data of cluster {own.cluster_id}, but zookeeper.connect leads to {found}: set it "
        "to the cluster that the broker belongs to"
    )


def why_another_process(view: ClusterSnapshot, own: OwnBroker) -> str | None:
    """Why the broker registered with this id is not this host's; None if nothing indicates that."""
    member = view.members.get(own.broker_id)
    if member is None or own.session_id is None or member.session_id == own.session_id:
        return None
    return (
        f"broker id {own.broker_id} is registered by another process than this host's, which tells clients to come to "
        f"{member.address}: give each broker an id of its own (broker_first_id)"
    )


def why_cut_off(view: ClusterSnapshot, broker_id: int, listener: str) -> str | None:
    """Why the broker, restarted with this ``inter.broker.listener.name``, could no longer reach some others;
    None if all registered brokers have that listener. Waiting does not help.
    """
    without = sorted(
        key
        for key, member in view.members.items()
        if key != broker_id and member.listeners and listener not in member.listeners
    )
    if not without:
        return None
    names = ", ".join(f"{key} ({view.members[key].address})" for key in without[:_SHOWN])
    more = f" and {len(without) - _SHOWN} more" if len(without) > _SHOWN else ""
    return (
        f"broker {broker_id} is to speak to the others by {listener} (inter.broker.listener.name), which they do not "
        f"advertise: {names}{more}. Give every broker this listener first (listeners, advertised.listeners) and leave "
        "the old name until all have it; then set the name"
    )


def why_not_stop(view: ClusterSnapshot, broker_id: int, together: frozenset[int] = frozenset()) -> list[str]:
    """The reasons against stopping the broker, one line each; empty if it may be stopped. ``together`` are
    brokers that stop with it, as those of a host that reboots.
    """
    if broker_id not in view.members:
        return []
    return [
        *_doubts_of_controller(view),
        *(
            reason
            for one in view.partitions
            if (reason := _why_partition_forbids(view, one, broker_id, together | {broker_id})) is not None
        ),
    ]


def not_back(
    view: ClusterSnapshot, broker_id: int, old_epoch: int, was_out_of: Callable[[TopicPartition], bool]
) -> list[str] | None:
    """The partitions that the restarted broker is not back in, one line each; empty if it is back in every
    ISR that it was in. None before it has registered.

    ``old_epoch`` is its broker epoch before the restart, -1 for none. ``was_out_of`` returns whether it was
    not in a partition's ISR.
    """
    member = view.members.get(broker_id)
    if member is None or member.epoch == old_epoch:
        return None
    mine = [one for one in view.partitions if not was_out_of(one.partition)]
    return [reason for one in mine if (reason := _why_not_back_in(view, one, broker_id)) is not None]


def not_known(view: ClusterSnapshot, broker_id: int) -> list[str]:
    """The brokers whose metadata lacks the broker, one line each; brokers that did not respond do not count."""
    return [
        f"broker {member.broker_id} does not know broker {broker_id} yet"
        for member in view.members.values()
        if member.knows is not None and broker_id not in member.knows
    ]


def in_words(reasons: Sequence[str]) -> str:
    """The first few reasons, and the number of further ones."""
    more = len(reasons) - _SHOWN
    shown = [*reasons[:_SHOWN], f"and {more} more like these"] if more > 0 else reasons
    return "; ".join(shown)


def out_of(view: ClusterSnapshot, broker_id: int) -> list[TopicPartition]:
    """The broker's partitions whose ISR does not contain it."""
    return [one.partition for one in view.partitions if broker_id not in one.isr]


def _doubts_of_controller(view: ClusterSnapshot) -> list[str]:
    if view.controller_id == NO_CONTROLLER:
        return [
            "the cluster has no controller, so nobody would take over what the broker leads: it waits for an election"
        ]
    if view.controller_id not in view.members:
        return [f"the controller, broker {view.controller_id}, is not registered: it waits for an election"]
    silence = view.members[view.controller_id].silence
    if silence is not None:
        return [f"the controller, broker {view.controller_id}, {silence}"]
    return [
        f"broker {member.broker_id} takes {_named(member.controller_id)} for the controller, ZooKeeper broker "
        f"{view.controller_id}: it waits until they agree"
        for member in view.members.values()
        if member.controller_id is not None and member.controller_id != view.controller_id
    ] + [
        f"broker {member.broker_id} answers for cluster {member.cluster_id}, not {view.cluster_id}"
        for member in view.members.values()
        if None not in (member.cluster_id, view.cluster_id) and member.cluster_id != view.cluster_id
    ]


def _named(controller_id: int | None) -> str:
    return "nobody" if controller_id in {None, NO_CONTROLLER} else f"broker {controller_id}"


def _why_partition_forbids(
    view: ClusterSnapshot, one: PartitionView, broker_id: int, stop: frozenset[int]
) -> str | None:
    if len(one.replicas) < 2:
        return None  # nobody could take over, so waiting is useless
    if one.leader not in view.members:
        return (
            f"{one.partition} has no leader: it waits for a replica of its ISR {_ids(one.isr)}"
            f"{_absent(view, [r for r in one.isr if r != broker_id])}"
        )
    if broker_id not in one.isr:
        return None
    left = [r for r in one.isr if r not in stop and view.serves(r)]
    if left and len(left) >= (one.min_isr or len(one.replicas) - 1):
        return None
    missing = [r for r in one.replicas if r not in stop and r not in left]
    gone = sorted(stop & set(one.replicas))
    if left and not missing and len(gone) == 1:
        return None  # the topic requires all its replicas, and waiting does not add any
    brokers = f"broker {broker_id}" if len(gone) == 1 else f"brokers {', '.join(map(str, gone))}"
    return (
        f"{one.partition} would have {len(left)} in sync without {brokers}, with min.insync.replicas="
        f"{one.min_isr}: it waits for{_absent(view, missing) or ' another replica'}"
    )


def _why_not_back_in(view: ClusterSnapshot, one: PartitionView, broker_id: int) -> str | None:
    if one.leader not in view.members:
        return f"{one.partition} has no leader: it waits for a replica of its ISR {_ids(one.isr)}"
    if broker_id in one.isr:
        return None
    return f"{one.partition} has broker {broker_id} not back in its ISR {_ids(one.isr)}, leader {one.leader}"


def _absent(view: ClusterSnapshot, replicas: Sequence[int]) -> str:
    """Each replica with its problem."""

    def state(broker_id: int) -> str:
        member = view.members.get(broker_id)
        if member is None:
            return "not registered"
        return "out of sync" if member.silence is None else member.silence

    return "".join(f" replica {broker_id} ({state(broker_id)})" for broker_id in replicas)


def _ids(broker_ids: Iterable[int]) -> str:
    return f"[{', '.join(str(broker_id) for broker_id in broker_ids)}]"
