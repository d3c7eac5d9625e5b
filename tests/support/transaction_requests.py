"""The requests of a transactional producer, its coordinator and its consumers, sent by a raw client."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch, iter_batches, iter_records, read_records
from rig.raw_client import RawClient
from tests.support.times import NOW_MS

COMMIT, ABORT = True, False
UNCOMMITTED, COMMITTED = 0, 1


def in_transaction(
    *values: bytes, pid: int, sequence: int = 0, epoch: int = 0, time_ms: int = NOW_MS, **options: Any
) -> bytes:
    """A transactional batch of records of the time ``time_ms``."""
    records = [Record(b"key", value, (), time_ms) for value in values]
    return build_batch(
        records,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        **{"transactional": True, **options},
    )


def produce(
    client: RawClient, topic: str, batch: bytes, *, transactional_id: str | None = "t", version: int = 9
) -> Any:
    """The response for the topic's partition 0."""
    fields = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    return client.ask(ApiKey.PRODUCE, version, fields).responses[0].partition_responses[0]


def write_markers(
    client: RawClient, *markers: tuple[int, int, bool, int, Mapping[str, Sequence[int]]], version: int = 1
) -> dict[int, dict[tuple[str, int], Errors]]:
    """Sends markers, each as (producer id, epoch, result, coordinator epoch, partitions by topic). Returns the
    errors by producer and partition.
    """
    fields = {
        "markers": [
            {
                "producer_id": pid,
                "producer_epoch": epoch,
                "transaction_result": result,
                "coordinator_epoch": coordinator,
                "topics": [
                    {"name": name, "partition_indexes": list(indexes)} for name, indexes in topics.items()
                ],
            }
            for pid, epoch, result, coordinator, topics in markers
        ]
    }
    response = client.ask(ApiKey.WRITE_TXN_MARKERS, version, fields)
    return {
        marker.producer_id: {
            (topic.name, row.partition_index): Errors(row.error_code)
            for topic in marker.topics
            for row in topic.partitions
        }
        for marker in response.markers
    }


def end(
    client: RawClient,
    topic: str,
    pid: int,
    result: bool,
    *,
    epoch: int = 0,
    coordinator: int = 0,
    partition: int = 0,
) -> Errors:
    """Ends a producer's transaction on one partition."""
    errors = write_markers(client, (pid, epoch, result, coordinator, {topic: [partition]}))
    return errors[pid][topic, partition]


def fetch(
    client: RawClient,
    topic: str,
    offset: int = 0,
    *,
    isolation: int = COMMITTED,
    version: int = 11,
    wait_ms: int = 0,
    max_bytes: int = 1 << 20,
) -> Any:
    """The response for the topic's partition 0. Only versions with topic names."""
    fields = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "topics": [
            {
                "topic": topic,
                "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}],
            }
        ],
        "forgotten_topics_data": [],
    }
    return client.ask(ApiKey.FETCH, version, fields).responses[0].partitions[0]


def aborted(answer: Any) -> list[tuple[int, int]] | None:
    """The aborted transactions of a fetch, as (producer id, first offset)."""
    if answer.aborted_transactions is None:
        return None
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]


def read_committed(client: RawClient, topic: str) -> list[bytes]:
    """What a consumer with isolation.level=read_committed returns: without aborted records and markers."""
    values: list[bytes] = []
    offset = 0
    while True:
        answer = fetch(client, topic, offset)
        assert answer.error_code == Errors.NONE
        if not answer.records:
            return values
        starts = sorted(aborted(answer) or [], key=lambda each: each[1])
        batches = list(_batches(answer.records))
        open_ids: set[int] = set()
        for header, records in batches:
            while starts and starts[0][1] <= header.base_offset:
                open_ids.add(starts.pop(0)[0])
            if header.is_control:
                if struct.unpack_from(">hh", records[0].key or b"")[1] == 0:
                    open_ids.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in open_ids):
                values += [record.value or b"" for record in records if record.offset >= offset]
        offset = batches[-1][0].next_offset


def _batches(data: bytes) -> Any:
    view = memoryview(data)
    position = 0
    for header in iter_batches(view):
        yield header, iter_records(view, header, position)
        position += header.size_bytes


def list_offset(client: RawClient, topic: str, timestamp: int = -1, isolation: int = COMMITTED) -> int:
    """ListOffsets for partition 0."""
    wanted = {"partition_index": 0, "timestamp": timestamp}
    fields = {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": topic, "partitions": [wanted]}],
    }
    answer = client.ask(ApiKey.LIST_OFFSETS, 4, fields).topics[0].partitions[0]
    assert answer.error_code == Errors.NONE
    return int(answer.offset)


def commit_offset(
    client: RawClient,
    group: str,
    topic: str,
    offset: int,
    *,
    pid: int,
    epoch: int = 0,
    version: int = 3,
    generation: int = -1,
    member: str = "",
) -> Errors:
    """TxnOffsetCommit for partition 0 of the topic."""
    fields = {
        "transactional_id": "t",
        "group_id": group,
        "producer_id": pid,
        "producer_epoch": epoch,
        "generation_id": generation,
        "member_id": member,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}],
            }
        ],
    }
    answer = client.ask(ApiKey.TXN_OFFSET_COMMIT, version, fields)
    return Errors(answer.topics[0].partitions[0].error_code)


def fetch_offset(client: RawClient, group: str, topic: str, *, stable: bool) -> tuple[int, Errors]:
    """OffsetFetch for partition 0: the offset and its error."""
    fields = {
        "groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
        "require_stable": stable,
    }
    row = client.ask(ApiKey.OFFSET_FETCH, 8, fields).groups[0].topics[0].partitions[0]
    return row.committed_offset, Errors(row.error_code)


def values_of(answer: Any) -> list[bytes]:
    """The values of all records in a fetch's answer, markers left out."""
    return [record.value or b"" for record in read_records(answer.records or b"")]
