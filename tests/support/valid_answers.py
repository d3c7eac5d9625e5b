"""What a broker's answer to a valid request (valid_requests) says, for each API and all its versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.protocol.fetch_requests import BATCHES_FROM
from broker.record.batch import read_records
from broker.record.message_set import each_message
from tests.support.valid_requests import World


def _produce(response: Any, version: int, world: World) -> None:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    assert topic.name == world.topic
    assert (partition.index, partition.error_code) == (0, Errors.NONE)
    assert partition.base_offset >= 1
    if version >= 5:
        assert partition.log_start_offset == 0


def _fetch(response: Any, version: int, world: World) -> None:
    (topic,) = response.responses
    (partition,) = topic.partitions
    assert (topic.topic_id == world.topic_id) if version >= 13 else (topic.topic == world.topic)
    assert partition.error_code == Errors.NONE
    assert partition.high_watermark >= 1
    if version >= BATCHES_FROM:
        first = read_records(partition.records)[0]
    else:
        first = next(each_message(memoryview(partition.records)))
        assert first.magic == (1 if version >= 2 else 0)
    assert (first.offset, first.value) == (0, b"first")


def _list_offsets(response: Any, version: int, world: World) -> None:
    (partition,) = response.topics[0].partitions
    assert (response.topics[0].name, partition.error_code) == (world.topic, Errors.NONE)
    if version == 0:
        assert partition.old_style_offsets == (0,)
    else:
        assert partition.offset == 0
    if version >= 4:
        assert partition.leader_epoch == 0


def _metadata(response: Any, version: int, world: World) -> None:
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (world.broker_id, world.host, world.port)
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.error_code, topic.name) == (Errors.NONE, world.topic)
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (0, (0,), (0,))
    if version >= 1:
        assert response.controller_id == world.broker_id
    if version >= 10:
        assert topic.topic_id == world.topic_id


def _leader_and_isr(response: Any, version: int, world: World) -> None:
    assert response.error_code == Errors.NONE
    if version >= 5:
        (topic,) = response.topics
        assert topic.topic_id == world.topic_id
        (partition,) = topic.partition_errors
    else:
        (partition,) = response.partition_errors
        assert partition.topic_name == world.topic
    # The term is known already: Kafka's word for "nothing new in this".
    assert (partition.partition_index, partition.error_code) == (0, Errors.STALE_CONTROLLER_EPOCH)


def _stop_replica(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.NONE
    (partition,) = response.partition_errors
    assert (partition.topic_name, partition.partition_index) == ("nowhere", 7)


def _ok(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.NONE


def _controlled_shutdown(response: Any, _version: int, _world: World) -> None:
    assert response.error_code in {Errors.BROKER_ID_NOT_REGISTERED, Errors.BROKER_NOT_AVAILABLE}
    assert response.remaining_partitions == ()


def _offset_commit(response: Any, _version: int, world: World) -> None:
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.error_code) == (world.topic, 0, Errors.NONE)


def _offset_fetch(response: Any, version: int, world: World) -> None:
    answer = response.groups[0] if version >= 8 else response
    if version >= 2:
        assert answer.error_code == Errors.NONE
    (partition,) = answer.topics[0].partitions
    assert (answer.topics[0].name, partition.error_code) == (world.topic, Errors.NONE)
    assert (partition.committed_offset, partition.metadata) == (1, "here")


def _find_coordinator(response: Any, version: int, world: World) -> None:
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id) == (Errors.NONE, world.broker_id)
    assert (found.host, found.port) == (world.host, world.port)
    if version >= 4:
        assert found.key == world.group


def _join_group(response: Any, version: int, _world: World) -> None:
    if version >= 4:  # KIP-394: first the member learns its id
        assert response.error_code == Errors.MEMBER_ID_REQUIRED
        assert response.member_id.startswith("raw-")
        return
    assert response.error_code == Errors.NONE
    assert (response.generation_id, response.protocol_name) == (1, "range")
    assert response.leader == response.member_id == response.members[0].member_id
    assert response.members[0].metadata == b"\0\1"


def _stranger(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.UNKNOWN_MEMBER_ID


def _leave_group(response: Any, version: int, _world: World) -> None:
    if version < 3:
        assert response.error_code == Errors.UNKNOWN_MEMBER_ID
        return
    assert response.error_code == Errors.NONE
    (member,) = response.members
    assert (member.member_id, member.error_code) == ("stranger", Errors.UNKNOWN_MEMBER_ID)


def _describe_groups(response: Any, _version: int, world: World) -> None:
    (group,) = response.groups
    assert (group.error_code, group.group_id, group.group_state) == (Errors.NONE, world.group, "Empty")
    assert group.members == ()


def _list_groups(response: Any, version: int, world: World) -> None:
    assert response.error_code == Errors.NONE
    (group,) = [row for row in response.groups if row.group_id == world.group]
    if version >= 4:
        assert group.group_state == "Empty"
    if version >= 5:
        assert group.group_type == "classic"


def _api_versions(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.NONE
    assert {row.api_key for row in response.api_keys} == set(APIS)


def _create_topics(response: Any, version: int, _world: World) -> None:
    (topic,) = response.topics
    assert (topic.name, topic.error_code) == (f"created-by-version-{version}", Errors.NONE)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (1, 1)
        assert {config.name: config.value for config in topic.configs}["retention.ms"] == "60000"
    if version >= 7:
        assert topic.topic_id is not None


def _delete_topics(response: Any, version: int, _world: World) -> None:
    (topic,) = response.responses
    assert (topic.name, topic.error_code) == (f"deleted-by-version-{version}", Errors.NONE)


def _delete_records(response: Any, _version: int, world: World) -> None:
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.error_code) == (world.topic, 0, Errors.NONE)
    assert partition.low_watermark == 0


def _init_producer_id(response: Any, _version: int, _world: World) -> None:
    assert (response.error_code, response.producer_epoch) == (Errors.NONE, 0)
    assert response.producer_id >= 0


# No producer of this broker was ever transactional, so it has no partition of __transaction_state.


def _add_partitions_to_txn(response: Any, version: int, world: World) -> None:
    if version >= 4:
        (of_transaction,) = response.results_by_transaction
        (topic,) = of_transaction.topic_results
    else:
        (topic,) = response.results_by_topic_v3_and_below
    (partition,) = topic.results_by_partition
    assert topic.name == world.topic
    assert (partition.partition_index, partition.partition_error_code) == (0, Errors.NOT_COORDINATOR)


def _not_coordinated(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.NOT_COORDINATOR


def _write_txn_markers(response: Any, _version: int, _world: World) -> None:
    (marker,) = response.markers
    (partition,) = marker.topics[0].partitions
    assert (marker.producer_id, partition.partition_index) == (1, 7)
    assert partition.error_code != Errors.NONE


def _txn_offset_commit(response: Any, _version: int, world: World) -> None:
    """Of a producer whose transaction nobody can verify: there is no coordinator."""
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == (world.topic, 0)
    assert partition.error_code == Errors.COORDINATOR_NOT_AVAILABLE


def _describe_producers(response: Any, _version: int, world: World) -> None:
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.error_code, partition.active_producers) == (world.topic, Errors.NONE, ())


def _describe_transactions(response: Any, _version: int, _world: World) -> None:
    (state,) = response.transaction_states
    assert (state.transactional_id, state.error_code) == ("tx", Errors.NOT_COORDINATOR)


def _list_transactions(response: Any, _version: int, _world: World) -> None:
    assert (response.error_code, response.transaction_states) == (Errors.NONE, ())
    assert response.unknown_state_filters == ()


def _offset_for_leader_epoch(response: Any, version: int, world: World) -> None:
    (partition,) = response.topics[0].partitions
    assert (response.topics[0].topic, partition.error_code) == (world.topic, Errors.NONE)
    assert partition.end_offset >= 1
    if version >= 1:
        assert partition.leader_epoch == 0


def _no_authorizer(response: Any, _version: int, _world: World) -> None:
    for rows in ("results", "filter_results"):
        if hasattr(response, rows):
            (response,) = getattr(response, rows)
    assert response.error_code == Errors.SECURITY_DISABLED
    assert "No Authorizer" in response.error_message


def _describe_configs(response: Any, _version: int, world: World) -> None:
    (result,) = response.results
    assert (result.error_code, result.resource_name) == (Errors.NONE, world.topic)
    configs = {config.name: config.value for config in result.configs}
    assert configs["cleanup.policy"] == "delete"
    assert configs["segment.bytes"] == "1073741824"


def _create_partitions(response: Any, version: int, _world: World) -> None:
    (result,) = response.results
    assert (result.name, result.error_code) == (f"extended-by-version-{version}", Errors.NONE)


def _delete_groups(response: Any, version: int, _world: World) -> None:
    (result,) = response.results
    assert (result.group_id, result.error_code) == (f"no-group-{version}", Errors.GROUP_ID_NOT_FOUND)


def _offset_delete(response: Any, _version: int, world: World) -> None:
    assert response.error_code == Errors.NONE
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == (world.topic, 7)
    assert partition.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def _altered_configs(response: Any, _version: int, world: World) -> None:
    (result,) = response.responses
    assert (result.error_code, result.resource_name) == (Errors.NONE, world.topic)


def _elect_leaders(response: Any, version: int, world: World) -> None:
    if version >= 1:
        assert response.error_code == Errors.NONE
    (topic,) = response.replica_election_results
    (partition,) = topic.partition_result
    assert (topic.topic, partition.partition_id) == (world.topic, 0)
    assert partition.error_code == Errors.ELECTION_NOT_NEEDED


def _alter_partition_reassignments(response: Any, _version: int, world: World) -> None:
    assert response.error_code == Errors.NONE
    (topic,) = response.responses
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == (world.topic, 0)
    assert partition.error_code == Errors.NO_REASSIGNMENT_IN_PROGRESS


def _list_partition_reassignments(response: Any, _version: int, _world: World) -> None:
    assert (response.error_code, response.topics) == (Errors.NONE, ())


def _describe_client_quotas(response: Any, _version: int, _world: World) -> None:
    assert (response.error_code, response.entries) == (Errors.NONE, ())


def _alter_client_quotas(response: Any, _version: int, _world: World) -> None:
    (entry,) = response.entries
    assert (entry.error_code, entry.error_message) == (Errors.NONE, None)
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("client-id", "nobody")]


def _alter_partition(response: Any, version: int, world: World) -> None:
    assert response.error_code == Errors.NONE
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.topic_id == world.topic_id) if version >= 2 else (topic.topic_name == world.topic)
    assert (partition.partition_index, partition.error_code) == (0, Errors.NONE)
    assert (partition.leader_id, partition.isr) == (world.broker_id, (world.broker_id,))


def _update_features(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.NONE
    (result,) = response.results
    assert (result.feature, result.error_code) == ("metadata.version", Errors.INVALID_REQUEST)


def _describe_cluster(response: Any, _version: int, world: World) -> None:
    assert (response.error_code, response.controller_id) == (Errors.NONE, world.broker_id)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (world.broker_id, world.host, world.port)
    assert response.cluster_id


def _describe_log_dirs(response: Any, version: int, world: World) -> None:
    (row,) = response.results
    assert row.error_code == Errors.NONE
    (topic,) = row.topics
    assert topic.name == world.topic
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.offset_lag, partition.is_future_key) == (0, 0, False)
    assert partition.partition_size > 0
    if version >= 4:
        assert row.total_bytes > row.usable_bytes > 0


def _alter_replica_log_dirs(response: Any, _version: int, world: World) -> None:
    (topic,) = response.results
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index) == (world.topic, 0)
    assert partition.error_code == Errors.LOG_DIR_NOT_FOUND


def _allocate_producer_ids(response: Any, _version: int, _world: World) -> None:
    assert (response.error_code, response.producer_id_len) == (Errors.NONE, 1000)
    assert response.producer_id_start >= 0


def _consumer_group_heartbeat(response: Any, _version: int, world: World) -> None:
    assert response.error_code == Errors.GROUP_ID_NOT_FOUND
    assert response.error_message == f"Group {world.group} is not a consumer group."
    assert response.assignment is None


def _consumer_group_describe(response: Any, _version: int, world: World) -> None:
    (group,) = response.groups
    assert (group.group_id, group.error_code) == (world.group, Errors.GROUP_ID_NOT_FOUND)


def _sasl_is_not_expected(response: Any, _version: int, _world: World) -> None:
    assert response.error_code == Errors.ILLEGAL_SASL_STATE


def _no_tokens_here(response: Any, _version: int, _world: World) -> None:
    """They are for listeners with SASL or TLS."""
    assert response.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def _describe_scram(response: Any, _version: int, _world: World) -> None:
    assert [row.user for row in response.results] == ["alice"]


def _alter_scram(response: Any, _version: int, _world: World) -> None:
    codes = {row.user: row.error_code for row in response.results}
    assert codes == {"alice": Errors.NONE, "nobody": Errors.RESOURCE_NOT_FOUND}


CHECKS: dict[ApiKey, Callable[[Any, int, World], None]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.UPDATE_METADATA: _ok,
    ApiKey.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _stranger,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _stranger,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.SASL_HANDSHAKE: _sasl_is_not_expected,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _not_coordinated,
    ApiKey.END_TXN: _not_coordinated,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: _no_authorizer,
    ApiKey.CREATE_ACLS: _no_authorizer,
    ApiKey.DELETE_ACLS: _no_authorizer,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.SASL_AUTHENTICATE: _sasl_is_not_expected,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _no_tokens_here,
    ApiKey.RENEW_DELEGATION_TOKEN: _no_tokens_here,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _no_tokens_here,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _no_tokens_here,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
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
