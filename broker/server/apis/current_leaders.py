"""Whom to ask instead: the leaders that Produce and Fetch name where this broker does not lead (KIP-951).

:mod:`broker.protocol.leader_tags` encodes them.
"""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.epochs import NO_EPOCH, NO_LEADER
from broker.protocol.leader_tags import NodeEndpoint
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition


class CurrentLeaders:
    """The leaders that one answer names. ``endpoints`` has the address of each that lives, once, on the listener that
    the request came in on.
    """

    def __init__(self, request: Request, ctx: ApiContext) -> None:
        self.endpoints: list[NodeEndpoint] = []
        self._listener = request.connection.listener_name
        self._replicas = ctx.replica_manager
        self._metadata = ctx.metadata_cache
        self._told: set[int] = set()

    def of(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """(id, epoch) of the leader; None if neither is known. The id is -1 while nobody leads.

        A replica on this broker knows it best; of other partitions the metadata says it.
        """
        partition = self._replicas.partition(topic_partition)
        known = self._metadata.partition_info(topic_partition) if partition is None else partition.state
        if known is None or (known.leader == NO_LEADER and known.leader_epoch == NO_EPOCH):
            return None
        if known.leader not in self._told:
            self._told.add(known.leader)
            self._note(known.leader)
        return known.leader, known.leader_epoch

    def _note(self, leader: int) -> None:
        address = self._metadata.endpoint(leader, self._listener)
        if address is not None:
            rack = self._metadata.rack_of(leader, self._listener)
            self.endpoints.append(NodeEndpoint(leader, *address, rack))
