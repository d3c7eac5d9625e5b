"""Hostile requests that are one long array: for each API the most expensive array.

``MANY`` elements are as many as Landline decodes (a hundred thousand; a handler thread processes them),
``FEW`` as many as it serves on its network thread. All name the victim's topic if the API allows it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bench.client.hostile import Hostility, Repeated
from bench.guard import smallest
from bench.preparations import frame
from bench.targets import Target
from bench.visit import Visit
from broker.protocol.api_keys import ApiKey

MANY: Final = 99_000
FEW: Final = 500
DISTINCT: Final = 2_000
TOPIC_RESOURCE: Final = 2


@dataclass(frozen=True, slots=True)
class Place:
    """The parameters of a peer: the victim's topic, the peers' own topic, and the number of the peer."""

    topic: str
    own: str
    number: int


def nothing(_visit: Visit, _topic: str) -> str:
    """Prepares nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Row:
    """One way of doing harm. ``prepare`` creates what it needs and returns the name of the peers'
    own topic.
    """

    key: str
    title: str
    does: Callable[[Place], Hostility]
    prepare: Callable[[Visit, str], str] = nothing
    targets: frozenset[Target] = field(default=frozenset({Target.LANDLINE, Target.KAFKA}))


def given(place: Place) -> dict[str, Any]:
    """Fields of requests, by their names."""
    return {
        "acks": -1,
        "group_id": f"hostile-{place.number}",
        "name": place.topic,
        "topic": place.topic,
        "resource_type": TOPIC_RESOURCE,
        "resource_name": place.topic,
        "replica_id": -1,
        "session_epoch": -1,
        "generation_id_or_member_epoch": -1,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "timeout": 1_000,
        "max_bytes": 1 << 20,
        "validate_only": True,
    }


def _array(
    key: str,
    title: str,
    api_key: ApiKey,
    version: int,
    path: smallest.Path,
    *,
    count: int,
    distinct: bool = False,
) -> Row:
    """A row of one request with ``count`` smallest elements, all alike or all ``distinct``."""

    def does(place: Place) -> Hostility:
        element = _UNLIKE.get((api_key, path), _smallest)(place)
        body = smallest.body(
            api_key, version, path, count, given=given(place), element=element, distinct=distinct
        )
        return Repeated([frame(api_key, version, body)])

    return Row(key, f"{title}, {count:,}", does)


def _smallest(_place: Place) -> dict[str, Any]:
    return {}


def _unknown_id(_place: Place) -> dict[str, Any]:
    return {"topic_id": uuid.UUID(int=7)}


def _topics_configs(place: Place) -> dict[str, Any]:
    return {"resource_type": TOPIC_RESOURCE, "resource_name": place.topic}


def _new_topic(_place: Place) -> dict[str, Any]:
    return {"num_partitions": 1, "replication_factor": 1}


# Replacements for smallest elements that are rejected at once, or are cheap.
_UNLIKE: Final[Mapping[tuple[ApiKey, smallest.Path], Callable[[Place], dict[str, Any]]]] = {
    (ApiKey.METADATA, ("topics",)): _unknown_id,
    (ApiKey.DESCRIBE_CONFIGS, ("resources",)): _topics_configs,
    (ApiKey.CREATE_TOPICS, ("topics",)): _new_topic,
}


_TOPICS: Final = ("topics", "partitions")
_ARRAYS: Final[tuple[tuple[str, str, ApiKey, int, smallest.Path], ...]] = (
    ("find-coordinator", "FindCoordinator keys", ApiKey.FIND_COORDINATOR, 6, ("coordinator_keys",)),
    ("offset-fetch", "OffsetFetch partitions", ApiKey.OFFSET_FETCH, 7, ("topics", "partition_indexes")),
    ("offset-fetch-groups", "OffsetFetch unknown groups", ApiKey.OFFSET_FETCH, 9, ("groups",)),
    ("offset-commit", "OffsetCommit partitions", ApiKey.OFFSET_COMMIT, 9, _TOPICS),
    ("list-offsets", "ListOffsets by time", ApiKey.LIST_OFFSETS, 9, _TOPICS),
    ("metadata-names", "Metadata unknown names", ApiKey.METADATA, 9, ("topics",)),
    ("metadata-ids", "Metadata unknown ids", ApiKey.METADATA, 12, ("topics",)),
    ("fetch", "Fetch partitions", ApiKey.FETCH, 12, _TOPICS),
    ("produce", "Produce partitions", ApiKey.PRODUCE, 9, ("topic_data", "partition_data")),
    ("join-group", "JoinGroup protocols", ApiKey.JOIN_GROUP, 9, ("protocols",)),
    ("sync-group", "SyncGroup assignments", ApiKey.SYNC_GROUP, 5, ("assignments",)),
    ("leave-group", "LeaveGroup members", ApiKey.LEAVE_GROUP, 5, ("members",)),
    ("delete-groups", "DeleteGroups names", ApiKey.DELETE_GROUPS, 2, ("groups_names",)),
    ("leader-epoch", "OffsetForLeaderEpoch partitions", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, _TOPICS),
)
# Always on a handler thread.
_ADMIN: Final[tuple[tuple[str, str, ApiKey, int, smallest.Path], ...]] = (
    ("describe-groups", "DescribeGroups unknown names", ApiKey.DESCRIBE_GROUPS, 5, ("groups",)),
    ("list-groups", "ListGroups states", ApiKey.LIST_GROUPS, 5, ("states_filter",)),
    ("create-topics", "CreateTopics, validated", ApiKey.CREATE_TOPICS, 7, ("topics",)),
    ("create-partitions", "CreatePartitions, validated", ApiKey.CREATE_PARTITIONS, 3, ("topics",)),
    ("delete-topics", "DeleteTopics names", ApiKey.DELETE_TOPICS, 6, ("topics",)),
    ("offset-delete", "OffsetDelete partitions", ApiKey.OFFSET_DELETE, 0, _TOPICS),
    ("delete-records", "DeleteRecords partitions", ApiKey.DELETE_RECORDS, 2, _TOPICS),
    (
        "move-logs",
        "AlterReplicaLogDirs",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        ("dirs", "topics", "partitions"),
    ),
    ("update-features", "UpdateFeatures", ApiKey.UPDATE_FEATURES, 1, ("feature_updates",)),
    ("replace-configs", "AlterConfigs", ApiKey.ALTER_CONFIGS, 2, ("resources",)),
    ("alter-configs", "IncrementalAlterConfigs", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ("resources",)),
    (
        "alter-one",
        "IncrementalAlterConfigs of one",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        ("resources", "configs"),
    ),
    ("describe-log-dirs", "DescribeLogDirs partitions", ApiKey.DESCRIBE_LOG_DIRS, 4, _TOPICS),
    ("elect-leaders", "ElectLeaders partitions", ApiKey.ELECT_LEADERS, 2, ("topic_partitions", "partitions")),
    ("reassign", "AlterPartitionReassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _TOPICS),
    (
        "reassignments",
        "ListPartitionReassignments",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        ("topics", "partition_indexes"),
    ),
    # A stranger's request in the name of an earlier controller; from the current one Kafka would execute
    # it, too.
    (
        "leader-and-isr",
        "LeaderAndIsr partitions",
        ApiKey.LEADER_AND_ISR,
        7,
        ("topic_states", "partition_states"),
    ),
    (
        "stop-replica",
        "StopReplica partitions",
        ApiKey.STOP_REPLICA,
        4,
        ("topic_states", "partition_states"),
    ),
)
# Arrays whose elements cost more the less they are alike.
_DISTINCT: Final[tuple[tuple[str, str, ApiKey, int, smallest.Path, int], ...]] = (
    ("find-coordinator", "FindCoordinator names", ApiKey.FIND_COORDINATOR, 6, ("coordinator_keys",), MANY),
    ("metadata", "Metadata different unknown names", ApiKey.METADATA, 12, ("topics",), MANY),
    ("describe-configs", "DescribeConfigs names", ApiKey.DESCRIBE_CONFIGS, 4, ("resources",), MANY),
    # Each is answered with the configs that it would have: 1.3 KB.
    ("create-topics", "CreateTopics names, validated", ApiKey.CREATE_TOPICS, 7, ("topics",), DISTINCT),
    (
        "reassign",
        "AlterPartitionReassignments replicas",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        ("topics", "partitions", "replicas"),
        MANY,
    ),
)


def array_rows() -> tuple[Row, ...]:
    """The rows of all these."""
    return (
        *(
            _array(f"{key}-few", title, api, version, path, count=FEW)
            for key, title, api, version, path in _ARRAYS
        ),
        *(
            _array(f"{key}-many", title, api, version, path, count=MANY)
            for key, title, api, version, path in (*_ARRAYS, *_ADMIN)
        ),
        *(
            _array(f"{key}-distinct", title, api, version, path, count=count, distinct=True)
            for key, title, api, version, path, count in _DISTINCT
        ),
        # Kafka returns a topic's configs as often as it is named: a thousand are 5 MB, as many as others half
        # a gigabyte.
        _array(
            "describe-configs",
            "DescribeConfigs of one topic",
            ApiKey.DESCRIBE_CONFIGS,
            4,
            ("resources",),
            count=1_000,
        ),
    )
