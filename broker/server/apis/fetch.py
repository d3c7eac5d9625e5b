"""Fetch, on the Processor's thread: records go from the file to the socket by sendfile.

What a reader with a session wants, and what of the results is news to it, is ``fetch_sessions``' part. What is not in
the page cache is read in by a handler thread first, so that no connection waits for a disk.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
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
from broker.server.fetch_sessions import FINAL_EPOCH, NO_SESSION, Asked, Outcome, Results, TopicKey, Wanted
from broker.utils.file_region import FileRegion
from broker.utils.topic_partition import TopicPartition

_WARM_BYTES = 1 << 20
_TOPIC_IDS_FROM = 13
# Longer waits are answered after this, with nothing: a reader asks again, and the timer's memory has a bound.
_LONGEST_WAIT_MS = 300_000


def handle(request: Request, ctx: ApiContext) -> Verdict:
    """Answers with what there is, or waits in the purgatory for ``min_bytes``."""
    message = codec.decode(request.api_key, request.api_version, "request", request.body)
    params = _params(message, ctx)
    fetch = ctx.fetch_sessions.begin(_asked(message, params, request.api_version >= _TOPIC_IDS_FROM, ctx))
    if fetch.error is not Errors.NONE:
        request.respond(_frame(request, Outcome(NO_SESSION, fetch.error, [])))
        return Verdict.SERVED
    readable: list[Wanted] = []
    refused: Results = []
    for wanted in fetch.wanted:
        if not wanted.entry.topic_partition.topic:
            wanted = _resolved(wanted, ctx)  # noqa: PLW2901
        error = _refusal(wanted.entry.topic_partition, ctx)
        if error is Errors.NONE:
            readable.append(wanted)
        else:
            refused.append((wanted, FetchedPartition(wanted.entry.topic_partition.partition, error)))
    if refused:  # errors are told at once
        params = replace(params, max_wait_ms=0)

    def answer(fetched: Fetched) -> None:
        results = [(wanted, result) for wanted, (_, result) in zip(readable, fetched, strict=True)]
        _answer(request, fetch.finish(results + refused), ctx)

    waiting = ctx.replica_manager.fetch(params, [wanted.entry for wanted in readable], answer)
    if waiting is not None:
        request.on_abandon = waiting.abandon
    return Verdict.SERVED


def _asked(message: Any, params: FetchParams, by_topic_id: bool, ctx: ApiContext) -> Asked:
    forgotten = [
        (codec.get(topic, "topic") or codec.get(topic, "topic_id") or ZERO_UUID, partition)
        for topic in codec.get(message, "forgotten_topics_data", ())
        for partition in topic.partitions
    ]
    return Asked(
        codec.get(message, "session_id", NO_SESSION),
        codec.get(message, "session_epoch", FINAL_EPOCH),
        list(_wanted(message, ctx)),
        forgotten,
        params.from_follower,
        by_topic_id,
    )


def _wanted(message: Any, ctx: ApiContext) -> Iterator[Wanted]:
    """Each partition asked for; the topic's name is empty where its id is not known here."""
    for topic in message.topics:
        key: uuid.UUID | str | None = codec.get(topic, "topic")
        if key is None:
            key = topic_id = topic.topic_id or ZERO_UUID
            name = ctx.metadata_cache.topic_name(topic_id) or ""
        else:
            name, topic_id = str(key), ZERO_UUID
        for partition in topic.partitions:
            yield Wanted(key, _entry(TopicPartition(name, partition.partition), topic_id, partition))


def _resolved(wanted: Wanted, ctx: ApiContext) -> Wanted:
    """A session's partition whose topic was not known, once it is."""
    entry = wanted.entry
    name = ctx.metadata_cache.topic_name(entry.topic_id)
    if name is None:
        return wanted
    return Wanted(
        wanted.topic, replace(entry, topic_partition=TopicPartition(name, entry.topic_partition.partition))
    )


def _refusal(topic_partition: TopicPartition, ctx: ApiContext) -> Errors:
    if ctx.replica_manager.partition(topic_partition) is not None:
        return Errors.NONE
    if not topic_partition.topic:
        return Errors.UNKNOWN_TOPIC_ID
    if ctx.replica_manager.is_offline(topic_partition):
        return Errors.KAFKA_STORAGE_ERROR
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


def _answer(request: Request, outcome: Outcome, ctx: ApiContext) -> None:
    payload = _frame(request, outcome)
    cold = [
        result.records
        for wanted, result in outcome.results
        if result.records is not None and _is_cold(wanted.entry.topic_partition, result.records, ctx)
    ]
    if not cold or not ctx.submit(lambda: _warm_and_respond(request, payload, cold)):
        request.respond(payload)


def _frame(request: Request, outcome: Outcome) -> list[bytes | FileRegion]:
    by_topic: dict[TopicKey, list[FetchedPartition]] = {}
    for wanted, result in outcome.results:
        by_topic.setdefault(wanted.topic, []).append(result)
    topics = [
        FetchedTopic("", key, partitions)
        if isinstance(key, uuid.UUID)
        else FetchedTopic(key, ZERO_UUID, partitions)
        for key, partitions in by_topic.items()
    ]
    return encode_fetch_response(
        request.api_version, request.correlation_id, topics, outcome.error, outcome.session_id
    )


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
