"""Fetch, on the Processor's thread: records go from the file to the socket by sendfile.

Fetch sessions are declined (session id 0), as Kafka does when its session cache is full: clients then send full
requests. What is not in the page cache is read in by a handler thread first, so that no connection waits for a disk.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

from broker.network.processor import Verdict
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition, FetchedTopic, encode_fetch_response
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.replica_manager import Fetched
from broker.server.apis.context import ApiContext
from broker.utils.file_region import FileRegion
from broker.utils.topic_partition import TopicPartition

_WARM_BYTES = 1 << 20
# Longer waits are answered after this, with nothing: a reader asks again, and the timer's memory has a bound.
_LONGEST_WAIT_MS = 300_000


def handle(request: Request, ctx: ApiContext) -> Verdict:
    """Answers with what there is, or waits in the purgatory for ``min_bytes``."""
    message = codec.decode(request.api_key, request.api_version, "request", request.body)
    if codec.get(message, "session_id", 0) != 0:
        request.respond(_frame(request, [], Errors.FETCH_SESSION_ID_NOT_FOUND))
        return Verdict.SERVED
    entries: list[FetchEntry] = []
    refused: dict[tuple[uuid.UUID | str, int], FetchedPartition] = {}
    for topic_key, topic, topic_id, partition in _wanted(message, ctx):
        error = _refusal(topic, partition.partition, ctx)
        if error is not Errors.NONE:
            refused[topic_key, partition.partition] = FetchedPartition(partition.partition, error)
            continue
        entries.append(_entry(TopicPartition(topic or "", partition.partition), topic_id, partition))
    params = _params(message, ctx)
    if refused:  # errors are told at once
        params = FetchParams(params.replica_id, params.replica_epoch, 0, params.min_bytes, params.max_bytes)
    waiting = ctx.replica_manager.fetch(
        params, entries, lambda fetched: _answer(request, message, fetched, refused, ctx)
    )
    if waiting is not None:
        request.on_abandon = waiting.abandon
    return Verdict.SERVED


def _wanted(message: Any, ctx: ApiContext) -> Iterator[tuple[uuid.UUID | str, str | None, uuid.UUID, Any]]:
    """Each partition asked for, with the topic's key in the request, its name and its id."""
    for topic in message.topics:
        name = codec.get(topic, "topic")
        if name is None:
            topic_id = topic.topic_id or ZERO_UUID
            key: uuid.UUID | str = topic_id
            name = ctx.metadata_cache.topic_name(topic_id)
        else:
            key, topic_id = name, ZERO_UUID
        for partition in topic.partitions:
            yield key, name, topic_id, partition


def _refusal(topic: str | None, index: int, ctx: ApiContext) -> Errors:
    if topic is None:
        return Errors.UNKNOWN_TOPIC_ID
    topic_partition = TopicPartition(topic, index)
    if ctx.replica_manager.partition(topic_partition) is not None:
        return Errors.NONE
    if ctx.metadata_cache.contains_partition(topic_partition):
        return Errors.NOT_LEADER_OR_FOLLOWER
    return Errors.UNKNOWN_TOPIC_OR_PARTITION


def _entry(topic_partition: TopicPartition, topic_id: uuid.UUID, partition: Any) -> FetchEntry:
    return FetchEntry(
        topic_partition,
        topic_id,
        partition.fetch_offset,
        partition.partition_max_bytes,
        codec.get(partition, "current_leader_epoch", -1),
        codec.get(partition, "last_fetched_epoch", -1),
        codec.get(partition, "log_start_offset", -1),
    )


def _params(message: Any, ctx: ApiContext) -> FetchParams:
    replica_state = codec.get(message, "replica_state")
    if replica_state is None:
        replica_id, replica_epoch = message.replica_id, -1
    else:
        replica_id, replica_epoch = replica_state.replica_id, replica_state.replica_epoch
    max_bytes = min(message.max_bytes, ctx.config.int("fetch.max.bytes"))
    max_wait_ms = min(codec.to_ms(message.max_wait), _LONGEST_WAIT_MS)
    return FetchParams(replica_id, replica_epoch, max_wait_ms, message.min_bytes, max_bytes)


def _answer(
    request: Request,
    message: Any,
    fetched: Fetched,
    refused: dict[tuple[uuid.UUID | str, int], FetchedPartition],
    ctx: ApiContext,
) -> None:
    results = iter([result for _, result in fetched])
    topics = []
    for topic in message.topics:
        name = codec.get(topic, "topic")
        topic_id = codec.get(topic, "topic_id") or ZERO_UUID
        key = topic_id if name is None else name
        partitions = [
            refused[key, partition.partition] if (key, partition.partition) in refused else next(results)
            for partition in topic.partitions
        ]
        topics.append(FetchedTopic(name or "", topic_id, partitions))
    payload = _frame(request, topics)
    cold = [
        result.records
        for entry, result in fetched
        if result.records is not None and _is_cold(entry.topic_partition, result.records, ctx)
    ]
    if not cold or not ctx.submit(lambda: _warm_and_respond(request, payload, cold)):
        request.respond(payload)


def _frame(
    request: Request, topics: list[FetchedTopic], error: Errors = Errors.NONE
) -> list[bytes | FileRegion]:
    return encode_fetch_response(request.api_version, request.correlation_id, topics, error)


def _is_cold(topic_partition: TopicPartition, region: FileRegion, ctx: ApiContext) -> bool:
    log = ctx.replica_manager.local_log(topic_partition)
    return log is not None and not log.is_cached(region)


def _warm_and_respond(request: Request, payload: list[bytes | FileRegion], cold: list[FileRegion]) -> None:
    for region in cold:
        for position in range(region.position, region.position + region.size, _WARM_BYTES):
            os.pread(
                region.file.fileno(), min(_WARM_BYTES, region.position + region.size - position), position
            )
    request.respond(payload)
