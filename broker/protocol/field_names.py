"""The names of all fields that any version of a message has, by its API, kind and structure.

Written by `make docs` (tools/message_types.py) from kio's schemas. Loaded when a message is given a field
that its version lacks: all versions' classes would take a hundred times as long.
"""

from __future__ import annotations

from typing import Final

_ROWS: Final = """
add_offsets_to_txn request AddOffsetsToTxnRequest: group_id producer_epoch producer_id transactional_id
add_offsets_to_txn response AddOffsetsToTxnResponse: error_code throttle_time
add_partitions_to_txn request AddPartitionsToTxnRequest: transactions v3_and_below_producer_epoch
        v3_and_below_producer_id v3_and_below_topics v3_and_below_transactional_id
add_partitions_to_txn request AddPartitionsToTxnTopic: name partitions
add_partitions_to_txn request AddPartitionsToTxnTransaction: producer_epoch producer_id topics
        transactional_id verify_only
add_partitions_to_txn response AddPartitionsToTxnPartitionResult: partition_error_code partition_index
add_partitions_to_txn response AddPartitionsToTxnResponse: error_code results_by_topic_v3_and_below
        results_by_transaction throttle_time
add_partitions_to_txn response AddPartitionsToTxnResult: topic_results transactional_id
add_partitions_to_txn response AddPartitionsToTxnTopicResult: name results_by_partition
allocate_producer_ids request AllocateProducerIdsRequest: broker_epoch broker_id
allocate_producer_ids response AllocateProducerIdsResponse: error_code producer_id_len producer_id_start
        throttle_time
alter_client_quotas request AlterClientQuotasRequest: entries validate_only
alter_client_quotas request EntityData: entity_name entity_type
alter_client_quotas request EntryData: entity ops
alter_client_quotas request OpData: key remove value
alter_client_quotas response AlterClientQuotasResponse: entries throttle_time
alter_client_quotas response EntityData: entity_name entity_type
alter_client_quotas response EntryData: entity error_code error_message
alter_configs request AlterConfigsRequest: resources validate_only
alter_configs request AlterConfigsResource: configs resource_name resource_type
alter_configs request AlterableConfig: name value
alter_configs response AlterConfigsResourceResponse: error_code error_message resource_name resource_type
alter_configs response AlterConfigsResponse: responses throttle_time
alter_partition request AlterPartitionRequest: broker_epoch broker_id topics
alter_partition request BrokerState: broker_epoch broker_id
alter_partition request PartitionData: leader_epoch leader_recovery_state new_isr new_isr_with_epochs
        partition_epoch partition_index
alter_partition request TopicData: partitions topic_id topic_name
alter_partition response AlterPartitionResponse: error_code throttle_time topics
alter_partition response PartitionData: error_code isr leader_epoch leader_id leader_recovery_state
        partition_epoch partition_index
alter_partition response TopicData: partitions topic_id topic_name
alter_partition_reassignments request AlterPartitionReassignmentsRequest: timeout topics
alter_partition_reassignments request ReassignablePartition: partition_index replicas
alter_partition_reassignments request ReassignableTopic: name partitions
alter_partition_reassignments response AlterPartitionReassignmentsResponse: error_code error_message
        responses throttle_time
alter_partition_reassignments response ReassignablePartitionResponse: error_code error_message
        partition_index
alter_partition_reassignments response ReassignableTopicResponse: name partitions
alter_replica_log_dirs request AlterReplicaLogDir: path topics
alter_replica_log_dirs request AlterReplicaLogDirTopic: name partitions
alter_replica_log_dirs request AlterReplicaLogDirsRequest: dirs
alter_replica_log_dirs response AlterReplicaLogDirPartitionResult: error_code partition_index
alter_replica_log_dirs response AlterReplicaLogDirTopicResult: partitions topic_name
alter_replica_log_dirs response AlterReplicaLogDirsResponse: results throttle_time
alter_user_scram_credentials request AlterUserScramCredentialsRequest: deletions upsertions
alter_user_scram_credentials request ScramCredentialDeletion: mechanism name
alter_user_scram_credentials request ScramCredentialUpsertion: iterations mechanism name salt
        salted_password
alter_user_scram_credentials response AlterUserScramCredentialsResponse: results throttle_time
alter_user_scram_credentials response AlterUserScramCredentialsResult: error_code error_message user
api_versions request ApiVersionsRequest: client_software_name client_software_version
api_versions response ApiVersion: api_key max_version min_version
api_versions response ApiVersionsResponse: api_keys error_code finalized_features finalized_features_epoch
        supported_features throttle_time zk_migration_ready
api_versions response FinalizedFeatureKey: max_version_level min_version_level name
api_versions response SupportedFeatureKey: max_version min_version name
consumer_group_describe request ConsumerGroupDescribeRequest: group_ids include_authorized_operations
consumer_group_describe response Assignment: topic_partitions
consumer_group_describe response ConsumerGroupDescribeResponse: groups throttle_time
consumer_group_describe response DescribedGroup: assignment_epoch assignor_name authorized_operations
        error_code error_message group_epoch group_id group_state members
consumer_group_describe response Member: assignment client_host client_id instance_id member_epoch member_id
        member_type rack_id subscribed_topic_names subscribed_topic_regex target_assignment
consumer_group_describe response TopicPartitions: partitions topic_id topic_name
consumer_group_heartbeat request ConsumerGroupHeartbeatRequest: group_id instance_id member_epoch member_id
        rack_id rebalance_timeout server_assignor subscribed_topic_names subscribed_topic_regex
        topic_partitions
consumer_group_heartbeat request TopicPartitions: partitions topic_id
consumer_group_heartbeat response Assignment: topic_partitions
consumer_group_heartbeat response ConsumerGroupHeartbeatResponse: assignment error_code error_message
        heartbeat_interval member_epoch member_id throttle_time
consumer_group_heartbeat response TopicPartitions: partitions topic_id
controlled_shutdown request ControlledShutdownRequest: broker_epoch broker_id
controlled_shutdown response ControlledShutdownResponse: error_code remaining_partitions
controlled_shutdown response RemainingPartition: partition_index topic_name
create_acls request AclCreation: host operation permission_type principal resource_name
        resource_pattern_type resource_type
create_acls request CreateAclsRequest: creations
create_acls response AclCreationResult: error_code error_message
create_acls response CreateAclsResponse: results throttle_time
create_delegation_token request CreatableRenewers: principal_name principal_type
create_delegation_token request CreateDelegationTokenRequest: max_lifetime owner_principal_name
        owner_principal_type renewers
create_delegation_token response CreateDelegationTokenResponse: error_code expiry_timestamp hmac
        issue_timestamp max_timestamp principal_name principal_type throttle_time token_id
        token_requester_principal_name token_requester_principal_type
create_partitions request CreatePartitionsAssignment: broker_ids
create_partitions request CreatePartitionsRequest: timeout topics validate_only
create_partitions request CreatePartitionsTopic: assignments count name
create_partitions response CreatePartitionsResponse: results throttle_time
create_partitions response CreatePartitionsTopicResult: error_code error_message name
create_topics request CreatableReplicaAssignment: broker_ids partition_index
create_topics request CreatableTopic: assignments configs name num_partitions replication_factor
create_topics request CreatableTopicConfig: name value
create_topics request CreateTopicsRequest: timeout topics validate_only
create_topics response CreatableTopicConfigs: config_source is_sensitive name read_only value
create_topics response CreatableTopicResult: configs error_code error_message name num_partitions
        replication_factor topic_config_error_code topic_id
create_topics response CreateTopicsResponse: throttle_time topics
delete_acls request DeleteAclsFilter: host_filter operation pattern_type_filter permission_type
        principal_filter resource_name_filter resource_type_filter
delete_acls request DeleteAclsRequest: filters
delete_acls response DeleteAclsFilterResult: error_code error_message matching_acls
delete_acls response DeleteAclsMatchingAcl: error_code error_message host operation pattern_type
        permission_type principal resource_name resource_type
delete_acls response DeleteAclsResponse: filter_results throttle_time
delete_groups request DeleteGroupsRequest: groups_names
delete_groups response DeletableGroupResult: error_code group_id
delete_groups response DeleteGroupsResponse: results throttle_time
delete_records request DeleteRecordsPartition: offset partition_index
delete_records request DeleteRecordsRequest: timeout topics
delete_records request DeleteRecordsTopic: name partitions
delete_records response DeleteRecordsPartitionResult: error_code low_watermark partition_index
delete_records response DeleteRecordsResponse: throttle_time topics
delete_records response DeleteRecordsTopicResult: name partitions
delete_topics request DeleteTopicState: name topic_id
delete_topics request DeleteTopicsRequest: timeout topic_names topics
delete_topics response DeletableTopicResult: error_code error_message name topic_id
delete_topics response DeleteTopicsResponse: responses throttle_time
describe_acls request DescribeAclsRequest: host_filter operation pattern_type_filter permission_type
        principal_filter resource_name_filter resource_type_filter
describe_acls response AclDescription: host operation permission_type principal
describe_acls response DescribeAclsResource: acls pattern_type resource_name resource_type
describe_acls response DescribeAclsResponse: error_code error_message resources throttle_time
describe_client_quotas request ComponentData: entity_type match match_type
describe_client_quotas request DescribeClientQuotasRequest: components strict
describe_client_quotas response DescribeClientQuotasResponse: entries error_code error_message throttle_time
describe_client_quotas response EntityData: entity_name entity_type
describe_client_quotas response EntryData: entity values
describe_client_quotas response ValueData: key value
describe_cluster request DescribeClusterRequest: endpoint_type include_cluster_authorized_operations
describe_cluster response DescribeClusterBroker: broker_id host port rack
describe_cluster response DescribeClusterResponse: brokers cluster_authorized_operations cluster_id
        controller_id endpoint_type error_code error_message throttle_time
describe_configs request DescribeConfigsRequest: include_documentation include_synonyms resources
describe_configs request DescribeConfigsResource: configuration_keys resource_name resource_type
describe_configs response DescribeConfigsResourceResult: config_source config_type documentation is_default
        is_sensitive name read_only synonyms value
describe_configs response DescribeConfigsResponse: results throttle_time
describe_configs response DescribeConfigsResult: configs error_code error_message resource_name
        resource_type
describe_configs response DescribeConfigsSynonym: name source value
describe_delegation_token request DescribeDelegationTokenOwner: principal_name principal_type
describe_delegation_token request DescribeDelegationTokenRequest: owners
describe_delegation_token response DescribeDelegationTokenResponse: error_code throttle_time tokens
describe_delegation_token response DescribedDelegationToken: expiry_timestamp hmac issue_timestamp
        max_timestamp principal_name principal_type renewers token_id token_requester_principal_name
        token_requester_principal_type
describe_delegation_token response DescribedDelegationTokenRenewer: principal_name principal_type
describe_groups request DescribeGroupsRequest: groups include_authorized_operations
describe_groups response DescribeGroupsResponse: groups throttle_time
describe_groups response DescribedGroup: authorized_operations error_code group_id group_state members
        protocol_data protocol_type
describe_groups response DescribedGroupMember: client_host client_id group_instance_id member_assignment
        member_id member_metadata
describe_log_dirs request DescribableLogDirTopic: partitions topic
describe_log_dirs request DescribeLogDirsRequest: topics
describe_log_dirs response DescribeLogDirsPartition: is_future_key offset_lag partition_index partition_size
describe_log_dirs response DescribeLogDirsResponse: error_code results throttle_time
describe_log_dirs response DescribeLogDirsResult: error_code log_dir topics total_bytes usable_bytes
describe_log_dirs response DescribeLogDirsTopic: name partitions
describe_producers request DescribeProducersRequest: topics
describe_producers request TopicRequest: name partition_indexes
describe_producers response DescribeProducersResponse: throttle_time topics
describe_producers response PartitionResponse: active_producers error_code error_message partition_index
describe_producers response ProducerState: coordinator_epoch current_txn_start_offset last_sequence
        last_timestamp producer_epoch producer_id
describe_producers response TopicResponse: name partitions
describe_transactions request DescribeTransactionsRequest: transactional_ids
describe_transactions response DescribeTransactionsResponse: throttle_time transaction_states
describe_transactions response TopicData: partitions topic
describe_transactions response TransactionState: error_code producer_epoch producer_id topics
        transaction_start_time transaction_state transaction_timeout transactional_id
describe_user_scram_credentials request DescribeUserScramCredentialsRequest: users
describe_user_scram_credentials request UserName: name
describe_user_scram_credentials response CredentialInfo: iterations mechanism
describe_user_scram_credentials response DescribeUserScramCredentialsResponse: error_code error_message
        results throttle_time
describe_user_scram_credentials response DescribeUserScramCredentialsResult: credential_infos error_code
        error_message user
elect_leaders request ElectLeadersRequest: election_type timeout topic_partitions
elect_leaders request TopicPartitions: partitions topic
elect_leaders response ElectLeadersResponse: error_code replica_election_results throttle_time
elect_leaders response PartitionResult: error_code error_message partition_id
elect_leaders response ReplicaElectionResult: partition_result topic
end_txn request EndTxnRequest: committed producer_epoch producer_id transactional_id
end_txn response EndTxnResponse: error_code throttle_time
expire_delegation_token request ExpireDelegationTokenRequest: expiry_time_period hmac
expire_delegation_token response ExpireDelegationTokenResponse: error_code expiry_timestamp throttle_time
fetch request FetchPartition: current_leader_epoch fetch_offset last_fetched_epoch log_start_offset
        partition partition_max_bytes replica_directory_id
fetch request FetchRequest: cluster_id forgotten_topics_data isolation_level max_bytes max_wait min_bytes
        rack_id replica_id replica_state session_epoch session_id topics
fetch request FetchTopic: partitions topic topic_id
fetch request ForgottenTopic: partitions topic topic_id
fetch request ReplicaState: replica_epoch replica_id
fetch response AbortedTransaction: first_offset producer_id
fetch response EpochEndOffset: end_offset epoch
fetch response FetchResponse: error_code node_endpoints responses session_id throttle_time
fetch response FetchableTopicResponse: partitions topic topic_id
fetch response LeaderIdAndEpoch: leader_epoch leader_id
fetch response NodeEndpoint: host node_id port rack
fetch response PartitionData: aborted_transactions current_leader diverging_epoch error_code high_watermark
        last_stable_offset log_start_offset partition_index preferred_read_replica records snapshot_id
fetch response SnapshotId: end_offset epoch
find_coordinator request FindCoordinatorRequest: coordinator_keys key key_type
find_coordinator response Coordinator: error_code error_message host key node_id port
find_coordinator response FindCoordinatorResponse: coordinators error_code error_message host node_id port
        throttle_time
heartbeat request HeartbeatRequest: generation_id group_id group_instance_id member_id
heartbeat response HeartbeatResponse: error_code throttle_time
incremental_alter_configs request AlterConfigsResource: configs resource_name resource_type
incremental_alter_configs request AlterableConfig: config_operation name value
incremental_alter_configs request IncrementalAlterConfigsRequest: resources validate_only
incremental_alter_configs response AlterConfigsResourceResponse: error_code error_message resource_name
        resource_type
incremental_alter_configs response IncrementalAlterConfigsResponse: responses throttle_time
init_producer_id request InitProducerIdRequest: producer_epoch producer_id transaction_timeout
        transactional_id
init_producer_id response InitProducerIdResponse: error_code producer_epoch producer_id throttle_time
join_group request JoinGroupRequest: group_id group_instance_id member_id protocol_type protocols reason
        rebalance_timeout session_timeout
join_group request JoinGroupRequestProtocol: metadata name
join_group response JoinGroupResponse: error_code generation_id leader member_id members protocol_name
        protocol_type skip_assignment throttle_time
join_group response JoinGroupResponseMember: group_instance_id member_id metadata
leader_and_isr request LeaderAndIsrLiveLeader: broker_id host_name port
leader_and_isr request LeaderAndIsrPartitionState: adding_replicas controller_epoch is_new isr leader
        leader_epoch leader_recovery_state partition_epoch partition_index removing_replicas replicas
        topic_name
leader_and_isr request LeaderAndIsrRequest: broker_epoch controller_epoch controller_id is_k_raft_controller
        live_leaders topic_states type_ ungrouped_partition_states
leader_and_isr request LeaderAndIsrTopicState: partition_states topic_id topic_name
leader_and_isr response LeaderAndIsrPartitionError: error_code partition_index topic_name
leader_and_isr response LeaderAndIsrResponse: error_code partition_errors topics
leader_and_isr response LeaderAndIsrTopicError: partition_errors topic_id
leave_group request LeaveGroupRequest: group_id member_id members
leave_group request MemberIdentity: group_instance_id member_id reason
leave_group response LeaveGroupResponse: error_code members throttle_time
leave_group response MemberResponse: error_code group_instance_id member_id
list_groups request ListGroupsRequest: states_filter types_filter
list_groups response ListGroupsResponse: error_code groups throttle_time
list_groups response ListedGroup: group_id group_state group_type protocol_type
list_offsets request ListOffsetsPartition: current_leader_epoch max_num_offsets partition_index timestamp
list_offsets request ListOffsetsRequest: isolation_level replica_id topics
list_offsets request ListOffsetsTopic: name partitions
list_offsets response ListOffsetsPartitionResponse: error_code leader_epoch offset old_style_offsets
        partition_index timestamp
list_offsets response ListOffsetsResponse: throttle_time topics
list_offsets response ListOffsetsTopicResponse: name partitions
list_partition_reassignments request ListPartitionReassignmentsRequest: timeout topics
list_partition_reassignments request ListPartitionReassignmentsTopics: name partition_indexes
list_partition_reassignments response ListPartitionReassignmentsResponse: error_code error_message
        throttle_time topics
list_partition_reassignments response OngoingPartitionReassignment: adding_replicas partition_index
        removing_replicas replicas
list_partition_reassignments response OngoingTopicReassignment: name partitions
list_transactions request ListTransactionsRequest: duration_filter producer_id_filters state_filters
list_transactions response ListTransactionsResponse: error_code throttle_time transaction_states
        unknown_state_filters
list_transactions response TransactionState: producer_id transaction_state transactional_id
metadata request MetadataRequest: allow_auto_topic_creation include_cluster_authorized_operations
        include_topic_authorized_operations topics
metadata request MetadataRequestTopic: name topic_id
metadata response MetadataResponse: brokers cluster_authorized_operations cluster_id controller_id
        throttle_time topics
metadata response MetadataResponseBroker: host node_id port rack
metadata response MetadataResponsePartition: error_code isr_nodes leader_epoch leader_id offline_replicas
        partition_index replica_nodes
metadata response MetadataResponseTopic: error_code is_internal name partitions topic_authorized_operations
        topic_id
offset_commit request OffsetCommitRequest: generation_id_or_member_epoch group_id group_instance_id
        member_id retention_time topics
offset_commit request OffsetCommitRequestPartition: commit_timestamp committed_leader_epoch
        committed_metadata committed_offset partition_index
offset_commit request OffsetCommitRequestTopic: name partitions
offset_commit response OffsetCommitResponse: throttle_time topics
offset_commit response OffsetCommitResponsePartition: error_code partition_index
offset_commit response OffsetCommitResponseTopic: name partitions
offset_delete request OffsetDeleteRequest: group_id topics
offset_delete request OffsetDeleteRequestPartition: partition_index
offset_delete request OffsetDeleteRequestTopic: name partitions
offset_delete response OffsetDeleteResponse: error_code throttle_time topics
offset_delete response OffsetDeleteResponsePartition: error_code partition_index
offset_delete response OffsetDeleteResponseTopic: name partitions
offset_fetch request OffsetFetchRequest: group_id groups require_stable topics
offset_fetch request OffsetFetchRequestGroup: group_id member_epoch member_id topics
offset_fetch request OffsetFetchRequestTopic: name partition_indexes
offset_fetch request OffsetFetchRequestTopics: name partition_indexes
offset_fetch response OffsetFetchResponse: error_code groups throttle_time topics
offset_fetch response OffsetFetchResponseGroup: error_code group_id topics
offset_fetch response OffsetFetchResponsePartition: committed_leader_epoch committed_offset error_code
        metadata partition_index
offset_fetch response OffsetFetchResponsePartitions: committed_leader_epoch committed_offset error_code
        metadata partition_index
offset_fetch response OffsetFetchResponseTopic: name partitions
offset_fetch response OffsetFetchResponseTopics: name partitions
offset_for_leader_epoch request OffsetForLeaderEpochRequest: replica_id topics
offset_for_leader_epoch request OffsetForLeaderPartition: current_leader_epoch leader_epoch partition
offset_for_leader_epoch request OffsetForLeaderTopic: partitions topic
offset_for_leader_epoch response EpochEndOffset: end_offset error_code leader_epoch partition
offset_for_leader_epoch response OffsetForLeaderEpochResponse: throttle_time topics
offset_for_leader_epoch response OffsetForLeaderTopicResult: partitions topic
produce request PartitionProduceData: index records
produce request ProduceRequest: acks timeout topic_data transactional_id
produce request TopicProduceData: name partition_data
produce response BatchIndexAndErrorMessage: batch_index batch_index_error_message
produce response LeaderIdAndEpoch: leader_epoch leader_id
produce response NodeEndpoint: host node_id port rack
produce response PartitionProduceResponse: base_offset current_leader error_code error_message index
        log_append_time log_start_offset record_errors
produce response ProduceResponse: node_endpoints responses throttle_time
produce response TopicProduceResponse: name partition_responses
renew_delegation_token request RenewDelegationTokenRequest: hmac renew_period
renew_delegation_token response RenewDelegationTokenResponse: error_code expiry_timestamp throttle_time
sasl_authenticate request SaslAuthenticateRequest: auth_bytes
sasl_authenticate response SaslAuthenticateResponse: auth_bytes error_code error_message session_lifetime
sasl_handshake request SaslHandshakeRequest: mechanism
sasl_handshake response SaslHandshakeResponse: error_code mechanisms
stop_replica request StopReplicaPartitionState: delete_partition leader_epoch partition_index
stop_replica request StopReplicaPartitionV0: partition_index topic_name
stop_replica request StopReplicaRequest: broker_epoch controller_epoch controller_id delete_partitions
        is_k_raft_controller topic_states topics ungrouped_partitions
stop_replica request StopReplicaTopicState: partition_states topic_name
stop_replica request StopReplicaTopicV1: name partition_indexes
stop_replica response StopReplicaPartitionError: error_code partition_index topic_name
stop_replica response StopReplicaResponse: error_code partition_errors
sync_group request SyncGroupRequest: assignments generation_id group_id group_instance_id member_id
        protocol_name protocol_type
sync_group request SyncGroupRequestAssignment: assignment member_id
sync_group response SyncGroupResponse: assignment error_code protocol_name protocol_type throttle_time
txn_offset_commit request TxnOffsetCommitRequest: generation_id group_id group_instance_id member_id
        producer_epoch producer_id topics transactional_id
txn_offset_commit request TxnOffsetCommitRequestPartition: committed_leader_epoch committed_metadata
        committed_offset partition_index
txn_offset_commit request TxnOffsetCommitRequestTopic: name partitions
txn_offset_commit response TxnOffsetCommitResponse: throttle_time topics
txn_offset_commit response TxnOffsetCommitResponsePartition: error_code partition_index
txn_offset_commit response TxnOffsetCommitResponseTopic: name partitions
update_features request FeatureUpdateKey: allow_downgrade feature max_version_level upgrade_type
update_features request UpdateFeaturesRequest: feature_updates timeout validate_only
update_features response UpdatableFeatureResult: error_code error_message feature
update_features response UpdateFeaturesResponse: error_code error_message results throttle_time
update_metadata request UpdateMetadataBroker: endpoints id_ rack v0_host v0_port
update_metadata request UpdateMetadataEndpoint: host listener port security_protocol
update_metadata request UpdateMetadataPartitionState: controller_epoch isr leader leader_epoch
        offline_replicas partition_index replicas topic_name zk_version
update_metadata request UpdateMetadataRequest: broker_epoch controller_epoch controller_id
        is_k_raft_controller live_brokers topic_states type_ ungrouped_partition_states
update_metadata request UpdateMetadataTopicState: partition_states topic_id topic_name
update_metadata response UpdateMetadataResponse: error_code
write_txn_markers request WritableTxnMarker: coordinator_epoch producer_epoch producer_id topics
        transaction_result
write_txn_markers request WritableTxnMarkerTopic: name partition_indexes
write_txn_markers request WriteTxnMarkersRequest: markers
write_txn_markers response WritableTxnMarkerPartitionResult: error_code partition_index
write_txn_markers response WritableTxnMarkerResult: producer_id topics
write_txn_markers response WritableTxnMarkerTopicResult: name partitions
write_txn_markers response WriteTxnMarkersResponse: markers
"""
FIELD_NAMES: Final = dict(row.split(": ", 1) for row in _ROWS.replace("\n    ", " ").strip().splitlines())
