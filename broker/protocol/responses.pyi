# Responses by Kafka's field names, all versions in one; of older ones some fields are missing.
# Written by `make docs` (tools/message_types.py) from kio's schemas. Read by mypy alone.

import datetime as dt
import uuid
from collections.abc import Sequence

class ListOffsetsPartitionResponse:
    partition_index: int
    error_code: int
    old_style_offsets: Sequence[int]  # 0 to 0
    timestamp: int  # from 1
    offset: int  # from 1
    leader_epoch: int  # from 4

class ListOffsetsTopicResponse:
    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]

class ListOffsetsResponse:
    topics: Sequence[ListOffsetsTopicResponse]
    throttle_time: dt.timedelta  # from 2

class RemainingPartition:
    topic_name: str
    partition_index: int

class ControlledShutdownResponse:
    error_code: int
    remaining_partitions: Sequence[RemainingPartition]

class CreatableTopicResult:
    name: str
    error_code: int
    error_message: str | None  # from 1
    topic_config_error_code: int  # from 5
    num_partitions: int  # from 5
    replication_factor: int  # from 5
    configs: Sequence[CreatableTopicConfigs] | None  # from 5
    topic_id: uuid.UUID | None  # from 7

class CreateTopicsResponse:
    topics: Sequence[CreatableTopicResult]
    throttle_time: dt.timedelta  # from 2

class CreatableTopicConfigs:
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool

class EpochEndOffset:
    error_code: int
    partition: int
    end_offset: int
    leader_epoch: int  # from 1

class OffsetForLeaderTopicResult:
    topic: str
    partitions: Sequence[EpochEndOffset]

class OffsetForLeaderEpochResponse:
    topics: Sequence[OffsetForLeaderTopicResult]
    throttle_time: dt.timedelta  # from 2

class AddPartitionsToTxnPartitionResult:
    partition_index: int
    partition_error_code: int

class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]

class AddPartitionsToTxnResponse:
    throttle_time: dt.timedelta
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult]  # 0 to 3
    error_code: int  # from 4
    results_by_transaction: Sequence[AddPartitionsToTxnResult]  # from 4

class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResult]

class WritableTxnMarkerPartitionResult:
    partition_index: int
    error_code: int

class WritableTxnMarkerTopicResult:
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]

class WritableTxnMarkerResult:
    producer_id: int
    topics: Sequence[WritableTxnMarkerTopicResult]

class WriteTxnMarkersResponse:
    markers: Sequence[WritableTxnMarkerResult]

class AllocateProducerIdsResponse:
    throttle_time: dt.timedelta
    error_code: int
    producer_id_start: int
    producer_id_len: int
