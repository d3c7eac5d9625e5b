"""What one step of the controller has to tell the brokers, gathered and sent as one request of each kind.

Kafka's ControllerBrokerRequestBatch. Leaders go first, then the metadata that names them, then what is to be
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from broker.config.endpoint import Endpoint
from broker.controller.channel_manager import ChannelManager
from broker.controller.context import ControllerContext, endpoints_by_id
from broker.protocol.api_keys import ApiKey
from broker.protocol.codec import ZERO_UUID
from broker.protocol.fields import Fields
from broker.protocol.one_body import OneBody
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import LEADER_DURING_DELETE, LeaderAndIsr

LEADER_AND_ISR_VERSION = 7
STOP_REPLICA_VERSION = 4
UPDATE_METADATA_VERSION = 8
TYPE_INCREMENTAL = 1
TYPE_FULL = 2
NO_EPOCH = -1
EPOCH_DURING_DELETE = -2
_SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

OnResponse = Callable[[int, ApiKey, Fields, Any], None]


class BrokerRequestBatch:
    """Owner: the controller's thread. ``on_response(broker_id, api, request, response)`` runs on a sender's
    thread.
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
        self._leader_and_isr: dict[int, dict[TopicPartition, tuple[LeaderAndIsr, bool]]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        # Partitions, and who is to be told of them (None: everyone): not one set for each of a thousand brokers.
        self._metadata: list[tuple[Collection[int] | None, dict[TopicPartition, None]]] = []
        self._full: set[int] = set()

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        partition: TopicPartition,
        state: LeaderAndIsr,
        *,
        is_new: bool = False,
    ) -> None:
        """Tells replicas of their leader, and every broker of the metadata."""
        for broker_id in broker_ids:
            states = self._leader_and_isr.setdefault(broker_id, {})
            was_new = partition in states and states[partition][1]
            states[partition] = (state, is_new or was_new)
        self.update_metadata_everywhere([partition])

    def add_stop_replica(self, broker_ids: Iterable[int], partition: TopicPartition, *, delete: bool) -> None:
        for broker_id in broker_ids:
            states = self._stop_replica.setdefault(broker_id, {})
            states[partition] = delete or states.get(partition, False)

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Without partitions it tells of the brokers alone, which every UpdateMetadata does."""
        self._metadata.append((frozenset(broker_ids), dict.fromkeys(partitions)))

    def update_metadata_everywhere(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """The same for every live broker."""
        if not self._metadata or self._metadata[-1][0] is not None:
            self._metadata.append((None, {}))
        self._metadata[-1][1].update(dict.fromkeys(partitions))

    def mark_full(self, broker_ids: Iterable[int]) -> None:
        """The next LeaderAndIsr to a broker that has just started is FULL, if it has all its partitions."""
        self._full.update(broker_ids)

    def flush(self) -> None:
        """Sends what was gathered to the brokers that are registered; the rest is for the dead."""
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, {}
        stop_replica, self._stop_replica = self._stop_replica, {}
        full, self._full = self._full, set()
        live = self._context.brokers
        addresses = endpoints_by_id(live, self._listener) if leader_and_isr else {}
        full -= self._incomplete(full, leader_and_isr) if full else set()
        for broker_id in leader_and_isr.keys() & live.keys():
            states = leader_and_isr[broker_id]
            fields = self._leader_and_isr_fields(states, addresses, is_full=broker_id in full)
            self._send(broker_id, ApiKey.LEADER_AND_ISR, fields)
        self._flush_metadata()
        for broker_id in stop_replica.keys() & live.keys():
            self._send(broker_id, ApiKey.STOP_REPLICA, self._stop_replica_fields(stop_replica[broker_id]))

    def _flush_metadata(self) -> None:
        """One message for all that are told the same."""
        told, self._metadata = self._metadata, []
        groups: dict[tuple[int, ...], list[int]] = {}
        for broker_id in self._context.brokers:
            for_it = tuple(n for n, (ids, _) in enumerate(told) if ids is None or broker_id in ids)
            groups.setdefault(for_it, []).append(broker_id)
        for for_them, broker_ids in groups.items():
            if for_them:
                partitions = dict.fromkeys(partition for n in for_them for partition in told[n][1])
                fields = self._update_metadata_fields(partitions)
                for broker_id in broker_ids:
                    self._send(broker_id, ApiKey.UPDATE_METADATA, fields)

    def _send(self, broker_id: int, api: ApiKey, fields: OneBody) -> None:
        def on_response(response: Any) -> None:
            self._on_response(broker_id, api, fields, response)

        self._channels.send(broker_id, api, _VERSIONS[api], fields, on_response)

    def _to_brokers(self, fields: Fields) -> OneBody:
        """A message without the epoch of the broker that it goes to."""
        common = {
            "controller_id": self._controller_id,
            "is_k_raft_controller": False,
            "controller_epoch": self._context.epoch,
        }
        return OneBody(common | dict(fields), "broker_epoch")

    def _incomplete(
        self, broker_ids: Collection[int], states: Mapping[int, Collection[TopicPartition]]
    ) -> set[int]:
        """Those of the brokers that have more replicas than they are told of."""
        return {
            replica.broker_id
            for replica in self._context.replicas_on(broker_ids)
            if replica.topic_partition not in states.get(replica.broker_id, ())
        }

    def _leader_and_isr_fields(
        self,
        states: Mapping[TopicPartition, tuple[LeaderAndIsr, bool]],
        addresses: Mapping[int, tuple[str, int]],
        *,
        is_full: bool,
    ) -> OneBody:
        topics: dict[str, list[Fields]] = {}
        for partition, (state, is_new) in states.items():
            topics.setdefault(partition.topic, []).append(
                self._leader_and_isr_partition(partition, state, is_new)
            )
        leaders = {state.leader for state, _ in states.values()}
        fields = {
            "type_": TYPE_FULL if is_full else TYPE_INCREMENTAL,
            "topic_states": [
                {"topic_name": topic, "topic_id": self._topic_id(topic), "partition_states": rows}
                for topic, rows in topics.items()
            ],
            "live_leaders": [
                {"broker_id": leader, "host_name": address[0], "port": address[1]}
                for leader in sorted(leaders)
                if (address := addresses.get(leader)) is not None
            ],
        }
        return self._to_brokers(fields)

    def _leader_and_isr_partition(
        self, partition: TopicPartition, state: LeaderAndIsr, is_new: bool
    ) -> Fields:
        assignment = self._context.topics[partition.topic]
        return {
            "partition_index": partition.partition,
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "partition_epoch": state.partition_epoch,
            "replicas": self._context.replicas(partition),
            "adding_replicas": assignment.adding_replicas.get(partition.partition, ()),
            "removing_replicas": assignment.removing_replicas.get(partition.partition, ()),
            "is_new": is_new,
            "leader_recovery_state": int(state.recovery_state),
        }

    def _update_metadata_fields(self, partitions: Iterable[TopicPartition]) -> OneBody:
        topics: dict[str, list[Fields]] = {}
        for partition in partitions:
            row = self._metadata_partition(partition)
            if row is not None:
                topics.setdefault(partition.topic, []).append(row)
        fields = {
            "topic_states": [
                {"topic_name": topic, "topic_id": self._topic_id(topic), "partition_states": rows}
                for topic, rows in topics.items()
            ],
            "live_brokers": [
                {
                    "id_": broker_id,
                    "endpoints": [_endpoint_fields(endpoint) for endpoint in live.registration.endpoints],
                    "rack": live.registration.rack,
                }
                for broker_id, live in self._context.brokers.items()
            ],
        }
        return self._to_brokers(fields)

    def _metadata_partition(self, partition: TopicPartition) -> Fields | None:
        """None for a partition that never had a leader: clients need not know of it yet."""
        state = self._context.leaders.get(partition)
        if state is None:
            return None
        deleted = self._context.is_being_deleted(partition.topic)
        replicas = self._context.replicas(partition)
        online = self._context.online_replicas(partition, even_shutting_down=True)
        return {
            "partition_index": partition.partition,
            "controller_epoch": state.controller_epoch,
            "leader": LEADER_DURING_DELETE if deleted else state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "zk_version": state.partition_epoch,
            "replicas": replicas,
            "offline_replicas": [replica for replica in replicas if replica not in online],
        }

    def _stop_replica_fields(self, states: Mapping[TopicPartition, bool]) -> OneBody:
        topics: dict[str, list[Fields]] = {}
        for partition, delete in states.items():
            row = {
                "partition_index": partition.partition,
                "leader_epoch": self._stop_epoch(partition),
                "delete_partition": delete,
            }
            topics.setdefault(partition.topic, []).append(row)
        rows_by_topic = [{"topic_name": topic, "partition_states": rows} for topic, rows in topics.items()]
        return self._to_brokers({"topic_states": rows_by_topic})

    def _stop_epoch(self, partition: TopicPartition) -> int:
        if self._context.is_being_deleted(partition.topic):
            return EPOCH_DURING_DELETE
        state = self._context.leaders.get(partition)
        return NO_EPOCH if state is None else state.leader_epoch

    def _topic_id(self, topic: str) -> Any:
        return self._context.topic_id(topic) or ZERO_UUID


_VERSIONS = {
    ApiKey.LEADER_AND_ISR: LEADER_AND_ISR_VERSION,
    ApiKey.STOP_REPLICA: STOP_REPLICA_VERSION,
    ApiKey.UPDATE_METADATA: UPDATE_METADATA_VERSION,
}


def _endpoint_fields(endpoint: Endpoint) -> Fields:
    return {
        "port": endpoint.port,
        "host": endpoint.host,
        "listener": endpoint.listener_name,
        "security_protocol": _SECURITY_PROTOCOL_IDS.get(endpoint.security_protocol, 0),
    }
