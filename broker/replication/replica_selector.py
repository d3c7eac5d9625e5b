"""Selects the replica from which a consumer should read (KIP-392), so that it need not read from another rack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.cluster.partition import Partition
from broker.replication.cluster_view import ClusterView
from broker.utils.clock import Clock


class Client(NamedTuple):
    """Who reads: its rack, and the listener by which it reaches brokers; Kafka's ClientMetadata."""

    rack: str
    listener: str


class ReplicaView(NamedTuple):
    """A replica that may be read; Kafka's ReplicaView. ``behind_ms``: how long ago it was caught up."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: int


def rack_aware(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int | None:
    """The id of the follower to read from; None for the leader. Kafka's RackAwareReplicaSelector.

    It is the most caught-up follower of the rack, unless the leader is in the rack or no follower is.
    """
    if not rack or leader.rack == rack:
        return None
    near = [follower for follower in followers if follower.rack == rack]
    if not near:
        return None
    best = max(near, key=lambda replica: (replica.log_end_offset, -replica.behind_ms, replica.broker_id))
    return best.broker_id


class ReplicaSelector:
    """Chooses replicas for consumers by :func:`rack_aware`. Any thread may call it. It changes nothing."""

    def __init__(self, broker_id: int, cluster: ClusterView, clock: Clock) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._clock = clock

    def choose(self, partition: Partition, client: Client, fetch_offset: int) -> int | None:
        """The follower from which ``client`` should read at ``fetch_offset``. None for this replica.

        Only followers in the ISR that have the offset are considered, because others may stay behind.
        """
        if not partition.is_leader:
            return None
        now_ms = self._clock.monotonic_ms()
        rack_of, listener = self._cluster.rack_of, client.listener
        leader = ReplicaView(
            self._broker_id, rack_of(self._broker_id, listener), partition.log.offsets.end, 0
        )
        followers = [
            ReplicaView(
                broker_id,
                rack_of(broker_id, listener),
                follower.log_end_offset,
                now_ms - follower.last_caught_up_ms,
            )
            for broker_id in partition.isr.committed
            if (follower := partition.followers.get(broker_id)) is not None
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        ]
        return rack_aware(client.rack, leader, followers)
