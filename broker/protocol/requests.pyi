# Requests by Kafka's field names, all versions in one; of older ones some fields are missing.
# Written by `make docs` (tools/message_types.py) from kio's schemas. Read by mypy alone.

import datetime as dt
import uuid
from collections.abc import Sequence

class ListOffsetsPartition:
    partition_index: int
    timestamp: int
    max_num_offsets: int  # 0 to 0
    current_leader_epoch: int  # from 4

class ListOffsetsTopic:
    name: str
    partitions: Sequence[ListOffsetsPartition]

class ListOffsetsRequest:
    replica_id: int
    topics: Sequence[ListOffsetsTopic]
    isolation_level: int  # from 2

class MetadataRequestTopic:
    name: str | None
    topic_id: uuid.UUID | None  # from 10

class MetadataRequest:
    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool  # from 4
    include_cluster_authorized_operations: bool  # 8 to 10
    include_topic_authorized_operations: bool  # from 8

class ControlledShutdownRequest:
    broker_id: int
    broker_epoch: int  # from 2

class OffsetCommitRequestPartition:
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    commit_timestamp: int  # 1 to 1
    committed_leader_epoch: int  # from 6

class OffsetCommitRequestTopic:
    name: str
    partitions: Sequence[OffsetCommitRequestPartition]

class OffsetCommitRequest:
    group_id: str
    topics: Sequence[OffsetCommitRequestTopic]
    generation_id_or_member_epoch: int  # from 1
    member_id: str  # from 1
    retention_time: dt.timedelta  # 2 to 4
    group_instance_id: str | None  # from 7

class OffsetFetchRequestTopic:
    name: str
    partition_indexes: Sequence[int]

class OffsetFetchRequest:
    group_id: str  # 0 to 7
    topics: Sequence[OffsetFetchRequestTopic] | None  # 0 to 7
    require_stable: bool  # from 7
    groups: Sequence[OffsetFetchRequestGroup]  # from 8

class OffsetFetchRequestTopics:
    name: str
    partition_indexes: Sequence[int]

class OffsetFetchRequestGroup:
    group_id: str
    topics: Sequence[OffsetFetchRequestTopics] | None
    member_id: str | None  # from 9
    member_epoch: int  # from 9

class FindCoordinatorRequest:
    key: str  # 0 to 3
    key_type: int  # from 1
    coordinator_keys: Sequence[str]  # from 4

class JoinGroupRequestProtocol:
    name: str
    metadata: bytes

class JoinGroupRequest:
    group_id: str
    session_timeout: dt.timedelta
    member_id: str
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    rebalance_timeout: dt.timedelta  # from 1
    group_instance_id: str | None  # from 5
    reason: str | None  # from 8

class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None  # from 3

class LeaveGroupRequest:
    group_id: str
    member_id: str  # 0 to 2
    members: Sequence[MemberIdentity]  # from 3

class MemberIdentity:
    member_id: str
    group_instance_id: str | None
    reason: str | None  # from 5

class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes

class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    assignments: Sequence[SyncGroupRequestAssignment]
    group_instance_id: str | None  # from 3
    protocol_type: str | None  # from 5
    protocol_name: str | None  # from 5

class DescribeGroupsRequest:
    groups: Sequence[str]
    include_authorized_operations: bool  # from 3

class ListGroupsRequest:
    states_filter: Sequence[str]  # from 4
    types_filter: Sequence[str]  # from 5

class SaslHandshakeRequest:
    mechanism: str

class ApiVersionsRequest:
    client_software_name: str  # from 3
    client_software_version: str  # from 3

class CreatableReplicaAssignment:
    partition_index: int
    broker_ids: Sequence[int]

class CreatableTopicConfig:
    name: str
    value: str | None

class CreatableTopic:
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]

class CreateTopicsRequest:
    topics: Sequence[CreatableTopic]
    timeout: dt.timedelta
    validate_only: bool  # from 1

class DeleteTopicsRequest:
    topic_names: Sequence[str]  # 0 to 5
    timeout: dt.timedelta
    topics: Sequence[DeleteTopicState]  # from 6

class DeleteTopicState:
    name: str | None
    topic_id: uuid.UUID | None

class DeleteRecordsPartition:
    partition_index: int
    offset: int

class DeleteRecordsTopic:
    name: str
    partitions: Sequence[DeleteRecordsPartition]

class DeleteRecordsRequest:
    topics: Sequence[DeleteRecordsTopic]
    timeout: dt.timedelta

class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout: dt.timedelta
    producer_id: int  # from 3
    producer_epoch: int  # from 3

class OffsetForLeaderPartition:
    partition: int
    leader_epoch: int
    current_leader_epoch: int  # from 2

class OffsetForLeaderTopic:
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]

class OffsetForLeaderEpochRequest:
    topics: Sequence[OffsetForLeaderTopic]
    replica_id: int  # from 3

class AddPartitionsToTxnTopic:
    name: str
    partitions: Sequence[int]

class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str  # 0 to 3
    v3_and_below_producer_id: int  # 0 to 3
    v3_and_below_producer_epoch: int  # 0 to 3
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic]  # 0 to 3
    transactions: Sequence[AddPartitionsToTxnTransaction]  # from 4

class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: Sequence[AddPartitionsToTxnTopic]

class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class WritableTxnMarkerTopic:
    name: str
    partition_indexes: Sequence[int]

class WritableTxnMarker:
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: int

class WriteTxnMarkersRequest:
    markers: Sequence[WritableTxnMarker]

class TxnOffsetCommitRequestPartition:
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int  # from 2

class TxnOffsetCommitRequestTopic:
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]

class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: Sequence[TxnOffsetCommitRequestTopic]
    generation_id: int  # from 3
    member_id: str  # from 3
    group_instance_id: str | None  # from 3

class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int  # from 1

class AclCreation:
    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int
    resource_pattern_type: int  # from 1

class CreateAclsRequest:
    creations: Sequence[AclCreation]

class DeleteAclsFilter:
    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    pattern_type_filter: int  # from 1

class DeleteAclsRequest:
    filters: Sequence[DeleteAclsFilter]

class DescribeConfigsResource:
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None

class DescribeConfigsRequest:
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool  # from 1
    include_documentation: bool  # from 3

class AlterConfigsAlterableConfig:
    name: str
    value: str | None

class AlterConfigsAlterConfigsResource:
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsAlterableConfig]

class AlterConfigsRequest:
    resources: Sequence[AlterConfigsAlterConfigsResource]
    validate_only: bool

class AlterReplicaLogDirTopic:
    name: str
    partitions: Sequence[int]

class AlterReplicaLogDir:
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]

class AlterReplicaLogDirsRequest:
    dirs: Sequence[AlterReplicaLogDir]

class DescribableLogDirTopic:
    topic: str
    partitions: Sequence[int]

class DescribeLogDirsRequest:
    topics: Sequence[DescribableLogDirTopic] | None

class SaslAuthenticateRequest:
    auth_bytes: bytes

class CreatePartitionsAssignment:
    broker_ids: Sequence[int]

class CreatePartitionsTopic:
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignment] | None

class CreatePartitionsRequest:
    topics: Sequence[CreatePartitionsTopic]
    timeout: dt.timedelta
    validate_only: bool

class CreatableRenewers:
    principal_type: str
    principal_name: str

class CreateDelegationTokenRequest:
    renewers: Sequence[CreatableRenewers]
    max_lifetime: dt.timedelta
    owner_principal_type: str | None  # from 3
    owner_principal_name: str | None  # from 3

class RenewDelegationTokenRequest:
    hmac: bytes
    renew_period: dt.timedelta

class ExpireDelegationTokenRequest:
    hmac: bytes
    expiry_time_period: dt.timedelta

class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str

class DescribeDelegationTokenRequest:
    owners: Sequence[DescribeDelegationTokenOwner] | None

class DeleteGroupsRequest:
    groups_names: Sequence[str]

class ElectLeadersTopicPartitions:
    topic: str
    partitions: Sequence[int]

class ElectLeadersRequest:
    topic_partitions: Sequence[ElectLeadersTopicPartitions] | None
    timeout: dt.timedelta
    election_type: int  # from 1

class IncrementalAlterConfigsAlterableConfig:
    name: str
    config_operation: int
    value: str | None

class IncrementalAlterConfigsAlterConfigsResource:
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsAlterableConfig]

class IncrementalAlterConfigsRequest:
    resources: Sequence[IncrementalAlterConfigsAlterConfigsResource]
    validate_only: bool

class ReassignablePartition:
    partition_index: int
    replicas: Sequence[int] | None

class ReassignableTopic:
    name: str
    partitions: Sequence[ReassignablePartition]

class AlterPartitionReassignmentsRequest:
    timeout: dt.timedelta
    topics: Sequence[ReassignableTopic]

class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: Sequence[int]

class ListPartitionReassignmentsRequest:
    timeout: dt.timedelta
    topics: Sequence[ListPartitionReassignmentsTopics] | None

class OffsetDeleteRequestPartition:
    partition_index: int

class OffsetDeleteRequestTopic:
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]

class OffsetDeleteRequest:
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]

class ComponentData:
    entity_type: str
    match_type: int
    match: str | None

class DescribeClientQuotasRequest:
    components: Sequence[ComponentData]
    strict: bool

class EntityData:
    entity_type: str
    entity_name: str | None

class OpData:
    key: str
    value: float
    remove: bool

class EntryData:
    entity: Sequence[EntityData]
    ops: Sequence[OpData]

class AlterClientQuotasRequest:
    entries: Sequence[EntryData]
    validate_only: bool

class UserName:
    name: str

class DescribeUserScramCredentialsRequest:
    users: Sequence[UserName] | None

class ScramCredentialDeletion:
    name: str
    mechanism: int

class ScramCredentialUpsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

class AlterUserScramCredentialsRequest:
    deletions: Sequence[ScramCredentialDeletion]
    upsertions: Sequence[ScramCredentialUpsertion]

class FeatureUpdateKey:
    feature: str
    max_version_level: int
    allow_downgrade: bool  # 0 to 0
    upgrade_type: int  # from 1

class UpdateFeaturesRequest:
    timeout: dt.timedelta
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: bool  # from 1

class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int  # from 1

class TopicRequest:
    name: str
    partition_indexes: Sequence[int]

class DescribeProducersRequest:
    topics: Sequence[TopicRequest]

class DescribeTransactionsRequest:
    transactional_ids: Sequence[str]

class ListTransactionsRequest:
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int  # from 1

class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int

class ConsumerGroupHeartbeatTopicPartitions:
    topic_id: uuid.UUID | None
    partitions: Sequence[int]

class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: dt.timedelta
    subscribed_topic_names: Sequence[str] | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatTopicPartitions] | None
    subscribed_topic_regex: str | None  # from 1

class ConsumerGroupDescribeRequest:
    group_ids: Sequence[str]
    include_authorized_operations: bool
