"""Collects what one step of the controller sends to the brokers, and sends one request of each kind
per broker.

Kafka's ControllerBrokerRequestBatch. LeaderAndIsr goes first, then UpdateMetadata, then StopReplica.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from broker.controller.channel_manager import ChannelManager
from broker.controller.context import ControllerContext, endpoints_by_id
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import (
    LEADER_AND_ISR_VERSION,
    STOP_REPLICA_VERSION,
    UPDATE_METADATA_VERSION,
    BrokerInfo,
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    MetadataUpdate,
    PartitionInfo,
    PartitionRole,
    StopReplicaRequest,
    StopState,
)
from broker.protocol.epochs import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, NO_EPOCH
from broker.protocol.one_body import OneBody
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr

OnResponse = Callable[[int, ApiKey, ControlRequest, ControlResponse], None]


class BrokerRequestBatch:
    """The requests of one step, by broker; Kafka's ControllerBrokerRequestBatch. The controller's thread owns
    it. ``on_response(broker_id, api, request, response)`` runs on a sender's thread.
    """

    def __init__(
        self,
        context: ControllerContext,
        channels: ChannelManager,
        controller_id: int,
        inter_broker_listener: str,
        on_response: OnResponse,
    ) -> None:
        self._context = context
        self._channels = channels
        self._controller_id = controller_id
        self._listener = inter_broker_listener
        self._on_response = on_response
        self._roles: dict[int, dict[TopicPartition, PartitionRole]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        # Partitions with the brokers that need their metadata (None: all), and whether these are all partitions.
        # Shared, because a set per broker would be too much with a thousand brokers.
        self._metadata: list[tuple[Collection[int] | None, dict[TopicPartition, None], bool]] = []
        self._full: set[int] = set()

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        partition: TopicPartition,
        state: LeaderAndIsr,
        *,
        is_new: bool = False,
    ) -> None:
        """Adds LeaderAndIsr for the given replicas, and UpdateMetadata for every broker."""
        role = self._role(partition, state, is_new=is_new)
        for broker_id in broker_ids:
            roles = self._roles.setdefault(broker_id, {})
            was_new = partition in roles and roles[partition].is_new
            roles[partition] = role._replace(is_new=True) if was_new and not is_new else role
        self.update_metadata_everywhere([partition])

    def add_stop_replica(self, broker_ids: Iterable[int], partition: TopicPartition, *, delete: bool) -> None:
        for broker_id in broker_ids:
            states = self._stop_replica.setdefault(broker_id, {})
            states[partition] = delete or states.get(partition, False)

    def add_update_metadata(self, broker_ids: Iterable[int]) -> None:
        """Adds UpdateMetadata without partitions: it only carries the live brokers, which every
        UpdateMetadata does.
        """
        self._metadata.append((frozenset(broker_ids), {}, False))

    def add_full_metadata(self, broker_ids: Iterable[int] | None = None) -> None:
        """Adds UpdateMetadata with all partitions, for the given brokers or all live ones. It is FULL if this
        controller knows all there are, so that a broker forgets topics that were deleted without its hearing of it.
        """
        told = None if broker_ids is None else frozenset(broker_ids)
        self._metadata.append((told, dict.fromkeys(self._context.partitions()), True))

    def update_metadata_everywhere(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Adds UpdateMetadata for every live broker."""
        if not self._metadata or self._metadata[-1][0] is not None:
            self._metadata.append((None, {}, False))
        self._metadata[-1][1].update(dict.fromkeys(partitions))

    def mark_full(self, broker_ids: Iterable[int]) -> None:
        """Marks brokers that have just started. Their next LeaderAndIsr is FULL if it has all
        their partitions.
        """
        self._full.update(broker_ids)

    def flush(self) -> None:
        """Sends what was collected to the registered brokers. Requests for other brokers are dropped."""
        gathered, self._roles = self._roles, {}
        stop_replica, self._stop_replica = self._stop_replica, {}
        full, self._full = self._full, set()
        live = self._context.brokers
        addresses = endpoints_by_id(live, self._listener) if gathered else {}
        full -= self._incomplete(full, gathered) if full else set()
        for broker_id in gathered.keys() & live.keys():
            roles = list(gathered[broker_id].values())
            leaders = sorted({role.leader for role in roles} & addresses.keys())
            order = LeaderAndIsrRequest(
                self._controller_id,
                self._context.epoch,
                roles,
                is_full=broker_id in full,
                leaders={leader: addresses[leader] for leader in leaders},
            )
            self._send([broker_id], ApiKey.LEADER_AND_ISR, LEADER_AND_ISR_VERSION, order)
        self._flush_metadata()
        for broker_id in stop_replica.keys() & live.keys():
            stopped = [
                StopState(partition, self._stop_epoch(partition), delete)
                for partition, delete in stop_replica[broker_id].items()
            ]
            stop = StopReplicaRequest(self._controller_id, self._context.epoch, stopped)
            self._send([broker_id], ApiKey.STOP_REPLICA, STOP_REPLICA_VERSION, stop)

    def _flush_metadata(self) -> None:
        """Encodes one message for all brokers that get the same content."""
        told, self._metadata = self._metadata, []
        groups: dict[tuple[int, ...], list[int]] = {}
        for broker_id in self._context.brokers:
            for_it = tuple(n for n, (ids, _, _) in enumerate(told) if ids is None or broker_id in ids)
            groups.setdefault(for_it, []).append(broker_id)
        for for_them, broker_ids in groups.items():
            if for_them:
                partitions = dict.fromkeys(partition for n in for_them for partition in told[n][1])
                update = self._metadata_update(partitions, is_full=any(told[n][2] for n in for_them))
                self._send(broker_ids, ApiKey.UPDATE_METADATA, UPDATE_METADATA_VERSION, update)

    def _send(self, broker_ids: Iterable[int], api: ApiKey, version: int, request: ControlRequest) -> None:
        """Sends the request, encoded once for all brokers: only the broker epoch differs."""
        body = OneBody(request.fields(), "broker_epoch")
        for broker_id in broker_ids:
            on_response = partial(self._answered, broker_id, api, request)
            self._channels.send(broker_id, api, version, body, on_response)

    def _answered(self, broker_id: int, api: ApiKey, request: ControlRequest, message: Any) -> None:
        self._on_response(broker_id, api, request, ControlResponse.of(message))

    def _incomplete(
        self, broker_ids: Collection[int], states: Mapping[int, Collection[TopicPartition]]
    ) -> set[int]:
        """The brokers that hold more replicas than ``states`` has for them."""
        return {
            replica.broker_id
            for replica in self._context.replicas_on(broker_ids)
            if replica.topic_partition not in states.get(replica.broker_id, ())
        }

    def _role(self, partition: TopicPartition, state: LeaderAndIsr, *, is_new: bool) -> PartitionRole:
        assignment = self._context.topics[partition.topic]
        return PartitionRole(
            partition,
            self._context.topic_id(partition.topic),
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
            self._context.replicas(partition),
            assignment.adding_replicas.get(partition.partition, ()),
            assignment.removing_replicas.get(partition.partition, ()),
            is_new,
            int(state.recovery_state),
        )

    def _metadata_update(self, partitions: Collection[TopicPartition], *, is_full: bool) -> MetadataUpdate:
        """A partition without a state has none yet, or one that cannot be read: then the update is not full."""
        infos = [
            (partition.topic, info)
            for partition in partitions
            if (info := self._partition_info(partition)) is not None
        ]
        ids = {topic: self._context.topic_id(topic) for topic in dict.fromkeys(topic for topic, _ in infos)}
        return MetadataUpdate(
            self._controller_id,
            [_broker_info(live.registration) for live in self._context.brokers.values()],
            {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None},
            infos,
            self._context.epoch,
            is_full=is_full and self._context.knows_all_topics and len(infos) == len(partitions),
        )

    def _partition_info(self, partition: TopicPartition) -> PartitionInfo | None:
        """None for a partition that never had a leader, because clients need not know it yet."""
        state = self._context.leaders.get(partition)
        if state is None:
            return None
        deleted = self._context.is_being_deleted(partition.topic)
        replicas = self._context.replicas(partition)
        online = self._context.online_replicas(partition, even_shutting_down=True)
        return PartitionInfo(
            partition.partition,
            LEADER_DURING_DELETE if deleted else state.leader,
            state.leader_epoch,
            state.isr,
            replicas,
            tuple([replica for replica in replicas if replica not in online]),
            state.controller_epoch,
            state.partition_epoch,
        )

    def _stop_epoch(self, partition: TopicPartition) -> int:
        if self._context.is_being_deleted(partition.topic):
            return EPOCH_DURING_DELETE
        state = self._context.leaders.get(partition)
        return NO_EPOCH if state is None else state.leader_epoch


def _broker_info(registration: BrokerRegistration) -> BrokerInfo:
    return BrokerInfo(
        registration.broker_id,
        {each.listener_name: (each.host, each.port) for each in registration.endpoints},
        registration.rack,
        {each.listener_name: each.security_protocol for each in registration.endpoints},
    )
