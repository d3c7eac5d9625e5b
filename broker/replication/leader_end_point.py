"""A follower's other requests to its leader: its log's start and end offset, and whether it knows an epoch.

Kafka's RemoteLeaderEndPoint, without the fetch itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from broker.protocol.responses import EpochEndOffset, ListOffsetsPartitionResponse
from broker.replication.broker_channel import BrokerChannel
from broker.replication.follower_fetch import Followed

LIST_OFFSETS_VERSION = 9
OFFSET_FOR_LEADER_EPOCH_VERSION = 4


class LeaderEndPoint:
    """Requests to one leader over the channel that ``channel`` returns; Kafka's RemoteLeaderEndPoint.
    Each request raises ChannelError or ProtocolError if there is no answer, and KafkaError with the
    leader's error.
    """

    def __init__(self, broker_id: int, channel: Callable[[], BrokerChannel]) -> None:
        self._broker_id = broker_id
        self._channel = channel

    def log_end_offset(self, followed: Followed) -> int:
        """The end offset of the leader's log."""
        return self._offset(followed, LATEST_TIMESTAMP)

    def log_start_offset(self, followed: Followed) -> int:
        """The start offset of the leader's log."""
        return self._offset(followed, EARLIEST_TIMESTAMP)

    def knows_epoch(self, followed: Followed, epoch: int) -> bool:
        """Whether the leader's log has, or had, records of ``epoch`` or an earlier one."""
        asked = {"current_leader_epoch": followed.leader_epoch, "leader_epoch": epoch}
        answer: EpochEndOffset = self._ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            OFFSET_FOR_LEADER_EPOCH_VERSION,
            {"topic": followed.topic, "partitions": [{"partition": followed.index, **asked}]},
        )
        if answer.error_code:
            raise KafkaError(Errors(int(answer.error_code)), "the leader's epochs cannot be had")
        return bool(answer.end_offset >= 0)

    def _offset(self, followed: Followed, timestamp: int) -> int:
        asked = {"current_leader_epoch": followed.leader_epoch, "timestamp": timestamp}
        answer: ListOffsetsPartitionResponse = self._ask(
            ApiKey.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            {"name": followed.topic, "partitions": [{"partition_index": followed.index, **asked}]},
            isolation_level=0,
        )
        if answer.error_code:
            raise KafkaError(Errors(int(answer.error_code)), "the leader's offsets cannot be had")
        return int(answer.offset)

    def _ask(self, api_key: ApiKey, version: int, topic: Fields, **more: int) -> Any:
        fields = {"replica_id": self._broker_id, **more, "topics": [topic]}
        return self._channel().request(api_key, version, fields).topics[0].partitions[0]
