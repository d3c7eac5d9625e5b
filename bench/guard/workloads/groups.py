"""Consumer groups: a commit of ten partitions, and the heartbeat, the smallest request of all."""

from __future__ import annotations

from typing import ClassVar

from bench.guard.stage import Stage, StageError, encode
from bench.guard.workloads.workload import Workload, await_leader, create_topic
from broker.protocol.api_keys import ApiKey
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition

_SESSION_MS = 1_800_000


class _OfGroup(Workload):
    """A workload with a group of its name; creates the offsets topic."""

    _request: bytes

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        await_coordinator(stage, self.name)

    def request(self) -> int:
        return self.stage.exchange(self.client, self._request)


class OffsetCommit(_OfGroup):
    """A commit of ten offsets of a group without members; the answer waits for the offsets topic's append."""

    name = "offset-commit"
    api_key: ClassVar = ApiKey.OFFSET_COMMIT
    version: ClassVar = 9
    moving_share = 0.2
    per_slice = 4

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        create_topic(stage, self.name, 10)
        partitions = [
            {
                "partition_index": number,
                "committed_offset": 1_000 + number,
                "committed_leader_epoch": 0,
                "committed_metadata": "",
            }
            for number in range(10)
        ]
        fields = {
            "group_id": self.name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self.name, "partitions": partitions}],
        }
        self._request = encode(self.api_key, self.version, fields)


class GroupHeartbeat(_OfGroup):
    """A member of a stable group sends a heartbeat."""

    name = "heartbeat"
    api_key: ClassVar = ApiKey.HEARTBEAT
    version: ClassVar = 4
    moving_share = 0.3
    per_slice = 30

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        join = {
            "group_id": self.name,
            "session_timeout": _SESSION_MS,
            "rebalance_timeout": _SESSION_MS,
            "member_id": "",
            "group_instance_id": "one",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        }
        joined = stage.ask(ApiKey.JOIN_GROUP, 9, join)
        me = {
            "group_id": self.name,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": "one",
        }
        assignments = [{"member_id": joined.member_id, "assignment": b"all"}]
        sync = {**me, "protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
        stage.ask(ApiKey.SYNC_GROUP, 5, sync)
        self._request = encode(self.api_key, self.version, me)


def await_coordinator(stage: Stage, group: str) -> None:
    """Waits until the offsets topic exists, which the first request creates, and its groups are loaded."""
    describe = {"groups": [group], "include_authorized_operations": False}

    def is_coordinated() -> bool:
        try:
            stage.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
            stage.ask(ApiKey.DESCRIBE_GROUPS, 5, describe)
        except StageError:
            return False
        return True

    stage.wait_until(is_coordinated, "no group coordinator")
    await_leader(stage, TopicPartition(GROUP_METADATA_TOPIC, 0))
