"""The table of APIs: their keys and the version ranges that ApiVersions advertises.

Each row is one API; ``broker/server/apis/table.py`` says which module serves it.

The ranges are those of Kafka 3.9 in ZooKeeper mode. An API without a row is not advertised. A request for it
closes the connection, as Kafka does for unknown keys. The requests of consumer groups (KIP-848) are Kafka 4's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ApiKey(IntEnum):
    """The API keys of Kafka 3.9 that this broker serves or sends."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


class Api:
    """A row of the table of APIs. Versions are ``min_version``..``max_version``, both included;
    ``flexible_from`` is the first KIP-482 version.
    """

    __slots__ = ("flexible_from", "key", "max_version", "min_version", "name")

    def __init__(
        self, key: ApiKey, name: str, min_version: int, max_version: int, flexible_from: int
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_from = flexible_from


_NEVER: Final = 1 << 15
APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, "produce", 0, 11, 9),
        Api(ApiKey.FETCH, "fetch", 0, 17, 12),
        Api(ApiKey.LIST_OFFSETS, "list_offsets", 0, 9, 6),
        Api(ApiKey.METADATA, "metadata", 0, 12, 9),
        Api(ApiKey.LEADER_AND_ISR, "leader_and_isr", 0, 7, 4),
        Api(ApiKey.STOP_REPLICA, "stop_replica", 0, 4, 2),
        Api(ApiKey.UPDATE_METADATA, "update_metadata", 0, 8, 6),
        Api(ApiKey.CONTROLLED_SHUTDOWN, "controlled_shutdown", 0, 3, 3),
        Api(ApiKey.OFFSET_COMMIT, "offset_commit", 0, 9, 8),
        Api(ApiKey.OFFSET_FETCH, "offset_fetch", 0, 9, 6),
        Api(ApiKey.FIND_COORDINATOR, "find_coordinator", 0, 6, 3),
        Api(ApiKey.JOIN_GROUP, "join_group", 0, 9, 6),
        Api(ApiKey.HEARTBEAT, "heartbeat", 0, 4, 4),
        Api(ApiKey.LEAVE_GROUP, "leave_group", 0, 5, 4),
        Api(ApiKey.SYNC_GROUP, "sync_group", 0, 5, 4),
        Api(ApiKey.DESCRIBE_GROUPS, "describe_groups", 0, 5, 5),
        Api(ApiKey.LIST_GROUPS, "list_groups", 0, 5, 3),
        Api(ApiKey.SASL_HANDSHAKE, "sasl_handshake", 0, 1, _NEVER),
        Api(ApiKey.API_VERSIONS, "api_versions", 0, 4, 3),
        Api(ApiKey.CREATE_TOPICS, "create_topics", 0, 7, 5),
        Api(ApiKey.DELETE_TOPICS, "delete_topics", 0, 6, 4),
        Api(ApiKey.DELETE_RECORDS, "delete_records", 0, 2, 2),
        Api(ApiKey.INIT_PRODUCER_ID, "init_producer_id", 0, 5, 2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "offset_for_leader_epoch", 0, 4, 4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, "add_partitions_to_txn", 0, 5, 3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, "add_offsets_to_txn", 0, 4, 3),
        Api(ApiKey.END_TXN, "end_txn", 0, 4, 3),
        Api(ApiKey.WRITE_TXN_MARKERS, "write_txn_markers", 0, 1, 1),
        Api(ApiKey.TXN_OFFSET_COMMIT, "txn_offset_commit", 0, 4, 3),
        Api(ApiKey.DESCRIBE_ACLS, "describe_acls", 0, 3, 2),
        Api(ApiKey.CREATE_ACLS, "create_acls", 0, 3, 2),
        Api(ApiKey.DELETE_ACLS, "delete_acls", 0, 3, 2),
        Api(ApiKey.DESCRIBE_CONFIGS, "describe_configs", 0, 4, 4),
        Api(ApiKey.ALTER_CONFIGS, "alter_configs", 0, 2, 2),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "alter_replica_log_dirs", 0, 2, 2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, "describe_log_dirs", 0, 4, 2),
        Api(ApiKey.SASL_AUTHENTICATE, "sasl_authenticate", 0, 2, 2),
        Api(ApiKey.CREATE_PARTITIONS, "create_partitions", 0, 3, 2),
        Api(ApiKey.CREATE_DELEGATION_TOKEN, "create_delegation_token", 0, 3, 2),
        Api(ApiKey.RENEW_DELEGATION_TOKEN, "renew_delegation_token", 0, 2, 2),
        Api(ApiKey.EXPIRE_DELEGATION_TOKEN, "expire_delegation_token", 0, 2, 2),
        Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "describe_delegation_token", 0, 3, 2),
        Api(ApiKey.DELETE_GROUPS, "delete_groups", 0, 2, 2),
        Api(ApiKey.ELECT_LEADERS, "elect_leaders", 0, 2, 2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "incremental_alter_configs", 0, 1, 1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "alter_partition_reassignments", 0, 0, 0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "list_partition_reassignments", 0, 0, 0),
        Api(ApiKey.OFFSET_DELETE, "offset_delete", 0, 0, _NEVER),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "describe_client_quotas", 0, 1, 1),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, "alter_client_quotas", 0, 1, 1),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "describe_user_scram_credentials", 0, 0, 0),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "alter_user_scram_credentials", 0, 0, 0),
        Api(ApiKey.ALTER_PARTITION, "alter_partition", 0, 3, 0),
        Api(ApiKey.UPDATE_FEATURES, "update_features", 0, 1, 0),
        Api(ApiKey.DESCRIBE_CLUSTER, "describe_cluster", 0, 1, 0),
        Api(ApiKey.DESCRIBE_PRODUCERS, "describe_producers", 0, 0, 0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, "describe_transactions", 0, 0, 0),
        Api(ApiKey.LIST_TRANSACTIONS, "list_transactions", 0, 1, 0),
        Api(ApiKey.ALLOCATE_PRODUCER_IDS, "allocate_producer_ids", 0, 0, 0),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "consumer_group_heartbeat", 0, 1, 0),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "consumer_group_describe", 0, 1, 0),
    )
}
# Advertised and served only if ``group.coordinator.rebalance.protocols`` has `consumer`.
OF_CONSUMER_GROUPS: Final = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE})
