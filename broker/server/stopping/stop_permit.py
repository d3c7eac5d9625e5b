"""The stop permit: one lease in ZooKeeper, held by whoever is about to stop a broker of the cluster.

There is one znode, so there is one holder. The znode is never deleted, so that its versions never repeat;
empty means free. A lease lasts ``for_ms`` from its last write, measured only with the clock of ZooKeeper's
leader. So the permit of a crashed deployment becomes free after that time, whatever the hosts' clocks say.
Kafka's brokers ignore the znode.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from broker.protocol.epochs import NO_EPOCH
from broker.server.zookeeper_clock import since
from broker.server.zookeeper_lease import LeaseZnode
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.store import Store
from broker.zookeeper.znodes import STRANGE, BadZnodeError, int32, int64, load

PERMIT: Final = "/landline/stop_permit"
NOT_NOTED: Final = -1
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Lease:
    """A permit to stop one broker, as stored in ZooKeeper. ``holder`` is any text that is unique to a
    deployment. ``broker_epoch`` (-1: not registered) and ``out_of_isr`` describe the broker when the permit
    was granted; it is back when it has re-registered and is in the same ISRs again. ``since_ms`` is when it
    was granted, by ZooKeeper's clock, which renewals keep (-1: by a release that did not note it).
    """

    holder: str
    broker_id: int
    for_ms: int
    broker_epoch: int = NO_EPOCH
    out_of_isr: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    since_ms: int = NOT_NOTED

    def is_of(self, holder: str, broker_id: int) -> bool:
        """Whether the lease is this holder's for this broker: a holder stops the next broker only when this
        one is back.
        """
        return (self.holder, self.broker_id) == (holder, broker_id)

    def was_out_of(self, partition: TopicPartition) -> bool:
        """Whether the broker was not in this partition's ISR."""
        return partition.partition in self.out_of_isr.get(partition.topic, ())


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else's lease, and its remaining time."""

    lease: Lease
    remaining_ms: int

    def __str__(self) -> str:
        lease = self.lease
        return (
            f"the permit is held by {lease.holder} for broker {lease.broker_id}{since(lease.since_ms)}: it waits "
            f"until that broker is back, or the permit expires in {self.remaining_ms / 1000:.0f} s"
        )

    def to_json(self) -> str:
        """For programs: who has it, for which broker, since when (ms since 1970, -1: not noted) and for how long."""
        lease = self.lease
        said = {"holder": lease.holder, "broker": lease.broker_id, "since_ms": lease.since_ms}
        return json.dumps({**said, "remaining_ms": self.remaining_ms})


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """The partitions in the form that a lease stores."""
    found: dict[str, tuple[int, ...]] = {}
    for partition in partitions:
        found[partition.topic] = (*found.get(partition.topic, ()), partition.partition)
    return found


class StopPermit:
    """Takes, renews and releases the lease. Stateless. Every method may raise the store's errors."""

    def __init__(self, store: Store) -> None:
        self._znode = LeaseZnode(store, PERMIT, decode_lease)

    def take(self, lease: Lease) -> Held | None:
        """Takes the lease, or renews the same holder's lease for the same broker. Returns None, or the other
        holder's lease.
        """
        held = self._znode.take(
            lambda present: present.is_of(lease.holder, lease.broker_id),
            lambda since_ms: encode_lease(replace(lease, since_ms=since_ms)),
        )
        return None if held is None else Held(*held)

    def held_by_another(self, lease: Lease) -> Held | None:
        """The lease of another holder, or of this one for another broker, that has not expired. Takes nothing."""
        held = self.held()
        return None if held is None or held.lease.is_of(lease.holder, lease.broker_id) else held

    def held(self) -> Held | None:
        """The lease that has not expired, whosever it is. Takes nothing."""
        held = self._znode.held()
        return None if held is None else Held(*held)

    def noted(self) -> tuple[Lease, int] | None:
        """The stored lease, also one that has expired, and when it ends by ZooKeeper's clock. Writes nothing."""
        return self._znode.noted()

    def held_by(self, holder: str, broker_id: int) -> Lease | None:
        """The stored lease, if this holder still has it."""
        found = self._znode.read()
        lease = None if found is None else found[0]
        return lease if lease is not None and lease.is_of(holder, broker_id) else None

    def free(self, holder: str, broker_id: int) -> None:
        """Releases the holder's lease; another one is kept."""
        self._znode.free(lambda present: present.is_of(holder, broker_id))


def encode_lease(lease: Lease) -> bytes:
    value = {
        "version": _VERSION,
        "holder": lease.holder,
        "broker": lease.broker_id,
        "for_ms": lease.for_ms,
        "broker_epoch": lease.broker_epoch,
        "out_of_isr": {topic: list(numbers) for topic, numbers in lease.out_of_isr.items()},
        "since_ms": lease.since_ms,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_lease(data: bytes) -> Lease | None:
    """None for a free permit, and for unreadable data: a manually edited lease must not block rolling
    restarts forever.
    """
    try:
        value = load(PERMIT, data)
        return Lease(
            str(value["holder"]),
            int32(value["broker"]),
            int64(value["for_ms"]),
            int64(value["broker_epoch"]),
            {str(topic): tuple(map(int32, numbers)) for topic, numbers in value["out_of_isr"].items()},
            int64(value.get("since_ms", NOT_NOTED)),
        )
    except (BadZnodeError, *STRANGE):
        return None
