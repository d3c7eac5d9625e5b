"""The end offsets of partitions anywhere in the cluster: from the local log where this broker leads, otherwise by
ListOffsets from the leader, one request for each leader.

An end offset is the high watermark, which is what a consumer can read to. `consumer_lag` decides when to ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import structlog

from broker.protocol.api_keys import ApiKey
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import ProtocolError
from broker.protocol.fields import Fields
from broker.protocol.offsets import LATEST_TIMESTAMP
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.leader_end_point import LIST_OFFSETS_VERSION
from broker.replication.replica_manager import ReplicaManager
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_CLIENT_ID: Final = "landline-consumer-lag"
_A_CONSUMER: Final = -1  # it sees the high watermark, and not the log's end
_READ_UNCOMMITTED: Final = 0


class EndOffsets:
    """Finds end offsets. One thread calls :meth:`find` and :meth:`close`; it owns the channels to the leaders. Any
    thread may call :meth:`stop`.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        cache: MetadataCache,
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    ) -> None:
        self._replicas = replicas
        self._cache = cache
        self._make_channel = make_channel
        self._channels: dict[int, tuple[BrokerAddress, BrokerChannel]] = {}
        self._silent: set[int] = set()
        self._stopped = threading.Event()

    def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets that can be had now: none of a partition without a leader, or whose leader is silent."""
        ends: dict[TopicPartition, int] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for topic_partition in partitions:
            partition = self._replicas.partition(topic_partition)
            if partition is not None and partition.is_leader:
                if not partition.high_watermark_is_behind_term:
                    ends[topic_partition] = partition.log.high_watermark
            elif (info := self._cache.partition_info(topic_partition)) is not None:
                elsewhere.setdefault(info.leader, []).append(topic_partition)
        for leader, wanted in elsewhere.items():
            ends.update(self._ask(leader, wanted))
        self._forget_others(elsewhere)
        return ends

    def close(self) -> None:
        """Closes the channels, until the next search."""
        while self._channels:
            self._channels.popitem()[1][1].close()

    def stop(self) -> None:
        """Ends a search in progress: its request fails, and no other leader is asked."""
        self._stopped.set()
        for _, channel in self._channels.copy().values():
            channel.close()

    def _ask(self, leader: int, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        channel = self._channel(leader)
        if channel is None:
            return {}
        try:
            answer = channel.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, _request(wanted))
        except (ChannelError, ProtocolError) as error:
            if leader not in self._silent:
                self._silent.add(leader)
                _log.info("consumer_lag_unknown", leader=leader, partitions=len(wanted), reason=str(error))
            return {}
        self._silent.discard(leader)
        return _offsets(answer)

    def _channel(self, leader: int) -> BrokerChannel | None:
        """The channel to a broker at its present address; None if it is not alive, or nobody is to be asked."""
        if self._stopped.is_set():
            return None
        address = self._cache.broker_address(leader)
        known = self._channels.get(leader)
        if known is not None and known[0] == address:
            return known[1]
        if known is not None:
            known[1].close()
            del self._channels[leader]
        if address is None or leader == self._replicas.broker_id:  # it has just lost the leadership
            return None
        channel = self._make_channel(address, _CLIENT_ID)
        self._channels[leader] = address, channel
        if self._stopped.is_set():  # meanwhile, and this one was not closed
            channel.close()
        return channel

    def _forget_others(self, leaders: Collection[int]) -> None:
        for leader in self._channels.keys() - leaders:
            self._channels.pop(leader)[1].close()
        self._silent &= set(leaders)


def _request(wanted: Sequence[TopicPartition]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for topic, partition in wanted:
        row = {
            "partition_index": partition,
            "current_leader_epoch": NO_EPOCH,
            "timestamp": LATEST_TIMESTAMP,
        }
        topics.setdefault(topic, []).append(row)
    return {
        "replica_id": _A_CONSUMER,
        "isolation_level": _READ_UNCOMMITTED,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
    }


def _offsets(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, int(row.partition_index)): int(row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code and row.offset >= 0
    }
