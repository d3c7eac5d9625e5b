"""A small valid request of every API in every version, as the mapping that ``codec.encode`` takes.

The codec drops fields that only other versions have. So each API is one mapping, split only where versions
differ in shape. A :class:`World` has the names, ids and epochs of the broker under test.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.record.batch import Record, build_batch
from tests.support.times import NOW_MS

Fields = Mapping[str, Any]
SOME_ID = uuid.UUID(int=1)
TRANSACTION = "tx"
"""A transactional id that no producer has."""
_PRODUCER = {"transactional_id": TRANSACTION, "producer_id": 1, "producer_epoch": 0}
ALL_VERSIONS = [
    (api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
]


@dataclass(frozen=True, slots=True)
class World:
    """The broker under test and its content: a topic of one partition, and a group."""

    broker_id: int = 0
    broker_epoch: int = 0
    controller_epoch: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    topic: str = "topic"
    topic_id: uuid.UUID = SOME_ID
    group: str = "group"
    roles: Mapping[str, int] = field(default_factory=dict)
    """Brokers' ids by what they are, where there are several."""


def some_records(*values: bytes) -> bytes:
    """A v2 batch of records without keys."""
    return build_batch([Record(None, value, (), NOW_MS) for value in values or (b"value",)])


def version_id(pair: tuple[ApiKey, int]) -> str:
    """``fetch-17``, as a test's parameter id."""
    return f"{APIS[pair[0]].name}-{pair[1]}"


def body(api_key: ApiKey, version: int, world: World) -> bytes:
    """The encoded body of the valid request."""
    return codec.encode(api_key, version, "request", fields(api_key, version, world))


def fields(api_key: ApiKey, version: int, world: World) -> Fields:
    """The mapping of the valid request."""
    return _BUILDERS[api_key](version, world)


def _produce(_version: int, world: World) -> Fields:
    data = {"index": 0, "records": some_records()}
    return {"acks": -1, "timeout": 10_000, "topic_data": [{"name": world.topic, "partition_data": [data]}]}


def _fetch(_version: int, world: World) -> Fields:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 16}
    topic = {"topic": world.topic, "topic_id": world.topic_id, "partitions": [wanted]}
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [topic],
        "forgotten_topics_data": [],
    }


def _list_offsets(_version: int, world: World) -> Fields:
    wanted = {"partition_index": 0, "timestamp": -2}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": world.topic, "partitions": [wanted]}],
    }


def _metadata(version: int, world: World) -> Fields:
    return {
        "topics": [{"name": world.topic, "topic_id": uuid.UUID(int=0)}],
        "allow_auto_topic_creation": version >= 4,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _controller(world: World) -> dict[str, Any]:
    return {
        "controller_id": world.broker_id,
        "controller_epoch": world.controller_epoch,
        "broker_epoch": world.broker_epoch,
    }


def _leader_and_isr(_version: int, world: World) -> Fields:
    state = {
        **_leader_state(world),
        "partition_epoch": 0,
        "adding_replicas": [],
        "removing_replicas": [],
        "is_new": False,
    }
    topic = {"topic_name": world.topic, "topic_id": world.topic_id, "partition_states": [state]}
    leader = {"broker_id": world.broker_id, "host_name": world.host, "port": world.port}
    return {
        **_controller(world),
        "type_": 0,
        "topic_states": [topic],
        "ungrouped_partition_states": [{"topic_name": world.topic, **state}],
        "live_leaders": [leader],
    }


def _leader_state(world: World) -> dict[str, Any]:
    return {
        "partition_index": 0,
        "controller_epoch": world.controller_epoch,
        "leader": world.broker_id,
        "leader_epoch": 0,
        "isr": [world.broker_id],
        "replicas": [world.broker_id],
    }


def _stop_replica(_version: int, world: World) -> Fields:
    """Names a partition that does not exist, so that the request can be sent repeatedly."""
    name, index = "nowhere", 7
    state = {"partition_index": index, "leader_epoch": 0, "delete_partition": False}
    return {
        **_controller(world),
        "delete_partitions": False,
        "topic_states": [{"topic_name": name, "partition_states": [state]}],
        "topics": [{"name": name, "partition_indexes": [index]}],
        "ungrouped_partitions": [{"topic_name": name, "partition_index": index}],
    }


def _update_metadata(_version: int, world: World) -> Fields:
    state = {**_leader_state(world), "zk_version": 0, "offline_replicas": []}
    endpoint = {
        "port": world.port,
        "host": world.host,
        "listener": "PLAINTEXT",
        "security_protocol": 0,
    }
    live = {
        "id_": world.broker_id,
        "v0_host": world.host,
        "v0_port": world.port,
        "endpoints": [endpoint],
        "rack": None,
    }
    topic = {"topic_name": world.topic, "topic_id": world.topic_id, "partition_states": [state]}
    return {
        **_controller(world),
        "type_": 1,
        "topic_states": [topic],
        "ungrouped_partition_states": [{"topic_name": world.topic, **state}],
        "live_brokers": [live],
    }


def _controlled_shutdown(_version: int, _world: World) -> Fields:
    """For a broker that does not exist: shutting down the only one would end the test."""
    return {"broker_id": 4711, "broker_epoch": 1}


def _offset_commit(_version: int, world: World) -> Fields:
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "here"}
    return {
        "group_id": world.group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": -1,
        "topics": [{"name": world.topic, "partitions": [committed]}],
    }


def _offset_fetch(_version: int, world: World) -> Fields:
    topics = [{"name": world.topic, "partition_indexes": [0]}]
    return {
        "group_id": world.group,
        "topics": topics,
        "groups": [{"group_id": world.group, "member_id": None, "member_epoch": -1, "topics": topics}],
    }


def _find_coordinator(_version: int, world: World) -> Fields:
    return {"key": world.group, "key_type": 0, "coordinator_keys": [world.group]}


def _join_group(version: int, _world: World) -> Fields:
    return {
        "group_id": f"joined-by-version-{version}",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1"}],
    }


# For a member that the group does not have.


def _heartbeat(_version: int, world: World) -> Fields:
    return {"group_id": world.group, "generation_id": 1, "member_id": "stranger"}


def _leave_group(_version: int, world: World) -> Fields:
    return {
        "group_id": world.group,
        "member_id": "stranger",
        "members": [{"member_id": "stranger", "group_instance_id": None}],
    }


def _sync_group(_version: int, world: World) -> Fields:
    return {
        "group_id": world.group,
        "generation_id": 1,
        "member_id": "stranger",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "stranger", "assignment": b"\0\1"}],
    }


def _describe_groups(_version: int, world: World) -> Fields:
    return {"groups": [world.group], "include_authorized_operations": False}


def _list_groups(_version: int, _world: World) -> Fields:
    return {"states_filter": [], "types_filter": []}


def _sasl_handshake(_version: int, _world: World) -> Fields:
    return {"mechanism": "PLAIN"}


def _sasl_authenticate(_version: int, _world: World) -> Fields:
    return {"auth_bytes": b"\0alice\0secret"}


def _api_versions(_version: int, _world: World) -> Fields:
    return {"client_software_name": "landline-tests", "client_software_version": "1.0"}


def _create_topics(version: int, _world: World) -> Fields:
    topic = {
        "name": f"created-by-version-{version}",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "60000"}],
    }
    return {"topics": [topic], "timeout": 30_000, "validate_only": False}


def _delete_topics(version: int, _world: World) -> Fields:
    name = f"deleted-by-version-{version}"
    return {
        "topic_names": [name],
        "topics": [{"name": name, "topic_id": uuid.UUID(int=0)}],
        "timeout": 30_000,
    }


def _delete_records(_version: int, world: World) -> Fields:
    """None: the log begins there."""
    partition = {"partition_index": 0, "offset": 0}
    return {"topics": [{"name": world.topic, "partitions": [partition]}], "timeout": 10_000}


def _init_producer_id(_version: int, _world: World) -> Fields:
    return {"transactional_id": None, "transaction_timeout": 60_000}


# Of a producer that the coordinator does not know.


def _add_partitions_to_txn(_version: int, world: World) -> Fields:
    topics = [{"name": world.topic, "partitions": [0]}]
    transaction = {**_PRODUCER, "verify_only": True, "topics": topics}
    older = {f"v3_and_below_{name}": value for name, value in _PRODUCER.items()}
    return {**older, "v3_and_below_topics": topics, "transactions": [transaction]}


def _add_offsets_to_txn(_version: int, world: World) -> Fields:
    return {**_PRODUCER, "group_id": world.group}


def _end_txn(_version: int, _world: World) -> Fields:
    return {**_PRODUCER, "committed": True}


def _write_txn_markers(_version: int, _world: World) -> Fields:
    """For a partition that does not exist."""
    topic = {"name": "nowhere", "partition_indexes": [7]}
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [topic],
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


def _describe_transactions(_version: int, _world: World) -> Fields:
    return {"transactional_ids": [TRANSACTION]}


def _list_transactions(_version: int, _world: World) -> Fields:
    return {"state_filters": ["Ongoing"], "producer_id_filters": [], "duration_filter": -1}


def _offset_for_leader_epoch(_version: int, world: World) -> Fields:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": world.topic, "partitions": [wanted]}]}


def _describe_configs(_version: int, world: World) -> Fields:
    resource = {"resource_type": 2, "resource_name": world.topic, "configuration_keys": None}
    return {"resources": [resource]}


def _create_partitions(version: int, _world: World) -> Fields:
    topic = {"name": f"extended-by-version-{version}", "count": 2, "assignments": None}
    return {"topics": [topic], "timeout": 30_000, "validate_only": False}


def _create_token(version: int, _world: World) -> Fields:
    renewer = {"principal_type": "User", "principal_name": "bob"}
    owner = {"owner_principal_type": None, "owner_principal_name": None} if version >= 3 else {}
    return {**owner, "renewers": [renewer], "max_lifetime": 60_000}


def _renew_token(_version: int, _world: World) -> Fields:
    return {"hmac": b"unknown", "renew_period": 60_000}


def _expire_token(_version: int, _world: World) -> Fields:
    return {"hmac": b"unknown", "expiry_time_period": 60_000}


def _describe_tokens(_version: int, _world: World) -> Fields:
    return {"owners": [{"principal_type": "User", "principal_name": "alice"}]}


def _delete_groups(version: int, _world: World) -> Fields:
    return {"groups_names": [f"no-group-{version}"]}


def _offset_delete(_version: int, world: World) -> Fields:
    """Of a partition that does not exist, so that the group keeps its offset."""
    return {
        "group_id": world.group,
        "topics": [{"name": world.topic, "partitions": [{"partition_index": 7}]}],
    }


def _incremental_alter_configs(_version: int, world: World) -> Fields:
    config = {"name": "max.message.bytes", "config_operation": 0, "value": "1048588"}
    resource = {"resource_type": 2, "resource_name": world.topic, "configs": [config]}
    return {"resources": [resource], "validate_only": False}


def _alter_configs(_version: int, world: World) -> Fields:
    """Only looks whether it could: it would replace all configs of the topic."""
    config = {"name": "max.message.bytes", "value": "1048588"}
    resource = {"resource_type": 2, "resource_name": world.topic, "configs": [config]}
    return {"resources": [resource], "validate_only": True}


def _alter_replica_log_dirs(_version: int, world: World) -> Fields:
    """To a directory that the broker does not have."""
    topic = {"name": world.topic, "partitions": [0]}
    return {"dirs": [{"path": "/nowhere", "topics": [topic]}]}


def _elect_leaders(_version: int, world: World) -> Fields:
    topic = {"topic": world.topic, "partitions": [0]}
    return {"election_type": 0, "topic_partitions": [topic], "timeout": 10_000}


def _alter_partition_reassignments(_version: int, world: World) -> Fields:
    """Cancels a reassignment that is not in progress."""
    partition = {"partition_index": 0, "replicas": None}
    return {"timeout": 10_000, "topics": [{"name": world.topic, "partitions": [partition]}]}


def _list_partition_reassignments(_version: int, _world: World) -> Fields:
    return {"timeout": 10_000, "topics": None}


def _describe_client_quotas(_version: int, _world: World) -> Fields:
    component = {"entity_type": "client-id", "match_type": 0, "match": "nobody"}
    return {"components": [component], "strict": True}


def _alter_client_quotas(_version: int, _world: World) -> Fields:
    """Only looks whether it could."""
    entity = {"entity_type": "client-id", "entity_name": "nobody"}
    op = {"key": "producer_byte_rate", "value": 1024.0, "remove": False}
    return {"entries": [{"entity": [entity], "ops": [op]}], "validate_only": True}


def _describe_scram(_version: int, _world: World) -> Fields:
    return {"users": [{"name": "alice"}]}


def _alter_scram(_version: int, _world: World) -> Fields:
    made = {"mechanism": 1, "iterations": 4096, "salt": b"0123456789abcdef", "salted_password": bytes(32)}
    return {"deletions": [{"name": "nobody", "mechanism": 2}], "upsertions": [{"name": "alice", **made}]}


def _alter_partition(_version: int, world: World) -> Fields:
    """The current ISR, unchanged."""
    state = {
        "partition_index": 0,
        "leader_epoch": 0,
        "new_isr": [world.broker_id],
        "new_isr_with_epochs": [{"broker_id": world.broker_id, "broker_epoch": world.broker_epoch}],
        "partition_epoch": 0,
    }
    topic = {"topic_name": world.topic, "topic_id": world.topic_id, "partitions": [state]}
    return {"broker_id": world.broker_id, "broker_epoch": world.broker_epoch, "topics": [topic]}


def _update_features(version: int, _world: World) -> Fields:
    """Of a feature that no cluster with ZooKeeper has."""
    change = {"feature": "metadata.version", "max_version_level": 1}
    how = {"upgrade_type": 1} if version else {"allow_downgrade": False}
    return {"timeout": 10_000, "feature_updates": [{**change, **how}]}


def _describe_cluster(_version: int, _world: World) -> Fields:
    return {"include_cluster_authorized_operations": False}


def _describe_log_dirs(_version: int, world: World) -> Fields:
    return {"topics": [{"topic": world.topic, "partitions": [0]}]}


def _allocate_producer_ids(_version: int, world: World) -> Fields:
    return {"broker_id": world.broker_id, "broker_epoch": world.broker_epoch}


def _describe_acls(_version: int, _world: World) -> Fields:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _create_acls(_version: int, world: World) -> Fields:
    row = {
        "resource_type": 2,
        "resource_name": world.topic,
        "resource_pattern_type": 3,
        "principal": "User:nobody",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"creations": [row]}


def _delete_acls(version: int, world: World) -> Fields:
    """Those of nobody."""
    return {"filters": [{**_describe_acls(version, world), "principal_filter": "User:nobody"}]}


def _txn_offset_commit(_version: int, world: World) -> Fields:
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    return {
        "transactional_id": "t",
        "group_id": world.group,
        "producer_id": 1,
        "producer_epoch": 0,
        "topics": [{"name": world.topic, "partitions": [offset]}],
    }


def _describe_producers(_version: int, world: World) -> Fields:
    return {"topics": [{"name": world.topic, "partition_indexes": [0]}]}


def _consumer_group_heartbeat(_version: int, world: World) -> Fields:
    owned = {"topic_id": world.topic_id, "partitions": [0]}
    return {"group_id": world.group, "member_id": "stranger", "member_epoch": 1, "topic_partitions": [owned]}


def _consumer_group_describe(_version: int, world: World) -> Fields:
    return {"group_ids": [world.group], "include_authorized_operations": False}


_BUILDERS: Mapping[ApiKey, Callable[[int, World], Fields]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.UPDATE_METADATA: _update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_ACLS: _describe_acls,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expire_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_tokens,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.ALTER_PARTITION: _alter_partition,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.ALLOCATE_PRODUCER_IDS: _allocate_producer_ids,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
}
