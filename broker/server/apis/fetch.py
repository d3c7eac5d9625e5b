"""Fetch, on the Processor's thread: records go from the file to the socket with sendfile.

``fetch_sessions`` tracks what a session's reader wants and which results are new to it; ``fetch_answer`` sends the
response, and ``fetch_old`` converts records for old readers. What may wait for the disk is a handler's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

from broker.log.log import Log
from broker.network.request_channel import Request, Verdict
from broker.protocol.api_keys import ApiKey
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors, TooManyElements
from broker.protocol.fetch_messages import FetchedPartition
from broker.protocol.fetch_requests import (
    BATCHES_FROM,
    NO_SESSION,
    READ_COMMITTED,
    FetchRequest,
    TopicKey,
    parse_fetch_request,
)
from broker.replication.delayed_fetch import Fetched, FetchEntry, FetchParams
from broker.replication.replica_selector import Client
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import cluster_allowed
from broker.server.admission import RULES
from broker.server.apis.context import ApiContext, refuse_too_many, why_absent
from broker.server.apis.fetch_answer import answer, frame
from broker.server.apis.fetch_old import MOST_BYTES, convert_and_respond, for_older_readers
from broker.server.apis.strangers import introduce
from broker.server.fetch_sessions import FetchContext, Outcome
from broker.utils.topic_partition import TopicPartition

_RULE: Final = RULES[ApiKey.FETCH]
_ERROR_FROM: Final = 7  # the first version with an error code for the whole response
_ZSTD_FROM: Final = 10  # the first version whose readers know zstd (KIP-110)
_FOLLOWERS_FROM: Final = 11  # the first version whose clients may read from followers (KIP-392)
# Longer waits end after this time with an empty response: the reader retries, and the timer's memory
# is limited.
_LONGEST_WAIT_MS: Final = 300_000
# Of a response, a topic with its id, and a partition without records: for the quota, in newer versions.
_RESPONSE_BYTES: Final = 18
_TOPIC_BYTES: Final = 18
_PARTITION_BYTES: Final = 42
_ABORTED_BYTES: Final = 17
# An index of aborted transactions from this size on is read by a handler: 2,000 entries take 2 ms. One that was not
# written lately may wait for the disk, however small.
_MANY_ABORTS_BYTES: Final = 64 * 1024


def handle(request: Request, ctx: ApiContext) -> Verdict:
    """Responds with the available data, or waits in the purgatory for ``min_bytes``."""
    try:
        asked = parse_fetch_request(request.body, request.api_version, _RULE.here_elements)
    except TooManyElements:
        return ctx.queue_for(request, lambda: _handle_many(request, ctx), dear=True)
    if asked.replica_id >= 0 and not ctx.peers.knows(request.connection):
        return _introduce(request, ctx)
    fetch = _begin(request, asked, ctx)
    if fetch is None:
        return Verdict.SERVED

    # A session may have more partitions than one request names.
    aborts = asked.isolation_level == READ_COMMITTED and _bytes_of_aborts(fetch, ctx)
    dear = len(fetch.wanted) > _RULE.here_elements or aborts >= _MANY_ABORTS_BYTES
    if not (dear or aborts or request.connection.cold_fetches) and _read(
        request, _params(request, asked, ctx), fetch, ctx, waits=False
    ):
        return Verdict.SERVED

    ctx.quotas.measure_elsewhere(request)
    on_disk = _OnDisk(request, asked, fetch, ctx, dear)
    if on_disk.hand_over():
        return Verdict.SERVED
    request.again = on_disk.hand_over
    return Verdict.FULL


@final
class _OnDisk:
    """A fetch for a handler, which may wait for the disk. Compiled functions within functions are objects of their own,
    in reference cycles; a class is neither.
    """

    __slots__ = ("_asked", "_ctx", "_dear", "_fetch", "_request")

    def __init__(
        self, request: Request, asked: FetchRequest, fetch: FetchContext, ctx: ApiContext, dear: bool
    ) -> None:
        self._request = request
        self._asked = asked
        self._fetch = fetch
        self._ctx = ctx
        self._dear = dear

    def hand_over(self) -> bool:
        """False: no room for it."""
        return self._ctx.submit_for(self._request, self._find_and_read, dear=self._dear, asks_only=True)

    def _find_and_read(self) -> None:
        request, ctx = self._request, self._ctx
        _find(self._fetch, _params(request, self._asked, ctx), ctx)
        # Again: meanwhile a session may have ended, or a quota have been used up.
        _read(request, _params(request, self._asked, ctx), self._fetch, ctx)


def _may_wait(log: Log, offset: int, params: FetchParams) -> bool:
    """Whether finding the records from ``offset`` may have to wait for the disk."""
    if params.from_follower:
        end = log.offsets.end
    else:
        end = log.last_stable_offset() if params.committed_only else log.offsets.high_watermark
    return log.reader.may_wait(offset, end)


def _find(fetch: FetchContext, params: FetchParams, ctx: ApiContext) -> None:
    """Waits for the disk until all records are found in memory. A follower's read holds the partition's lock, for which
    producers wait; and the next fetch need not wait for those for which this response has no room.
    """
    for wanted in fetch.wanted:
        log = ctx.replica_manager.local_log(wanted.topic_partition)
        if log is not None and _may_wait(log, wanted.fetch_offset, params):
            log.reader.place_of(wanted.fetch_offset)


def _bytes_of_aborts(fetch: FetchContext, ctx: ApiContext) -> int:
    """The size of the largest index of aborted transactions that may be read from the disk, or that is too large to be
    read at once; else 0.
    """
    most = 0
    for wanted in fetch.wanted:
        log = ctx.replica_manager.local_log(wanted.topic_partition)
        if log is not None:
            size = log.reader.bytes_of_aborts(wanted.fetch_offset)
            if size >= _MANY_ABORTS_BYTES or not log.reader.is_recent(wanted.fetch_offset):
                most = max(most, size)
    return most


def _handle_many(request: Request, ctx: ApiContext) -> None:
    """Handles a request on a handler's thread; it may have many partitions."""
    if request.connection.gone:
        return
    try:
        asked = parse_fetch_request(request.body, request.api_version, _RULE.most_elements)
    except TooManyElements:
        refuse_too_many(request, _RULE.most_elements)
        return
    if asked.replica_id >= 0 and not ctx.peers.knows(request.connection):
        _introduce(request, ctx)
        return
    fetch = _begin(request, asked, ctx)
    if fetch is not None:
        params = _params(request, asked, ctx)
        _find(fetch, params, ctx)
        _read(request, params, fetch, ctx)


def _introduce(request: Request, ctx: ApiContext) -> Verdict:
    def admitted() -> None:
        if not ctx.submit_for(request, lambda: _handle_many(request, ctx)):
            request.close_connection()

    return introduce(request, ctx, admitted, lambda: _refuse_follower(request, ctx))


def _refuse_follower(request: Request, ctx: ApiContext) -> None:
    """Refuses a follower's fetch from other peers: its fetch offsets acknowledge records."""
    if request.api_version < _ERROR_FROM:
        request.close_connection()
    else:
        _respond_with_error(request, Errors.CLUSTER_AUTHORIZATION_FAILED, ctx)


def _respond_with_error(request: Request, error: Errors, ctx: ApiContext) -> None:
    throttle_ms = ctx.quotas.of_fetch(request, _RESPONSE_BYTES) if ctx.quotas.active else 0
    request.respond(frame(request, Outcome(NO_SESSION, error, []), ctx, throttle_ms))


def _begin(request: Request, asked: FetchRequest, ctx: ApiContext) -> FetchContext | None:
    """Determines what to read; None if the request was answered with its own or its session's error."""
    request.body = memoryview(b"")  # parsed, and the request may wait for long
    if asked.isolation_level >> 1:  # neither 0 nor READ_COMMITTED
        _refuse_isolation(request, asked, ctx)
        return None
    fetch = ctx.fetch_sessions.begin(asked, _wanted(asked, ctx), request.connection.principal)
    if fetch.error is Errors.NONE:
        return fetch
    _respond_with_error(request, fetch.error, ctx)
    return None


def _refuse_isolation(request: Request, asked: FetchRequest, ctx: ApiContext) -> None:
    """The error stands beside each partition too: the oldest versions have no other field for it."""
    error = Errors.INVALID_REQUEST
    rows = [
        (wanted, FetchedPartition(wanted.topic_partition.partition, error)) for wanted in _wanted(asked, ctx)
    ]
    request.respond(frame(request, Outcome(NO_SESSION, error, rows), ctx))


def _read(
    request: Request, params: FetchParams, fetch: FetchContext, ctx: ApiContext, *, waits: bool = True
) -> bool:
    """Reads, and responds or waits for data. Unless it ``waits`` for disks: False, with nothing done, if finding
    where the records begin may have to.
    """
    readable: list[FetchEntry] = []
    refused: Fetched = []
    news = fetch.news
    access = ctx.access
    acls = None if access is None else access.authorizer.version()
    denied = None if access is None else _denied(request, params, ctx)
    if denied is not None:
        news = None  # what changes later is read without asking again
    is_exempt = params.from_follower and denied is None
    replica_manager = ctx.replica_manager
    for wanted in fetch.wanted:
        topic_partition = wanted.topic_partition
        if not topic_partition.topic:
            wanted = _resolved(wanted, ctx)  # noqa: PLW2901
            topic_partition = wanted.topic_partition
            if topic_partition.topic:
                fetch.resolve(wanted)
        if denied is not None and topic_partition.topic and denied(topic_partition.topic):
            error = Errors.TOPIC_AUTHORIZATION_FAILED
        elif (partition := replica_manager.partition(topic_partition)) is not None:
            # Most partitions of a session have nothing to read.
            offset = wanted.fetch_offset
            if offset != partition.log.offsets.end and not waits and _may_wait(partition.log, offset, params):
                return False
            readable.append(wanted)
            continue
        else:
            error = why_absent(topic_partition, ctx) if topic_partition.topic else Errors.UNKNOWN_TOPIC_ID
        refused.append((wanted, FetchedPartition(topic_partition.partition, error)))
    if refused:  # errors are sent at once
        params = params._replace(max_wait_ms=0)

    on_read = _FetchAnswer(request, params, fetch, ctx, refused, acls, is_exempt)
    waiting = replica_manager.fetch(params, readable, on_read, news)
    if waiting is not None:
        connection = request.connection
        request.on_abandon = waiting.abandon
        # Every waiting fetch is checked at each append, and no client needs two at once: the earlier one is
        # answered now.
        before, connection.waiting = connection.waiting, waiting
        if before is not None:
            before.force_complete()
    return True


@final
class _FetchAnswer:
    """Answers a fetch with what was read for it, once, on any thread. ``acls``: the ACLs that it was checked by."""

    __slots__ = ("_acls", "_ctx", "_fetch", "_is_exempt", "_params", "_refused", "_request")

    def __init__(  # noqa: PLR0917 - one a request
        self,
        request: Request,
        params: FetchParams,
        fetch: FetchContext,
        ctx: ApiContext,
        refused: Fetched,
        acls: object,
        is_exempt: bool,
    ) -> None:
        self._request = request
        self._params = params
        self._fetch = fetch
        self._ctx = ctx
        self._refused = refused
        self._acls = acls
        self._is_exempt = is_exempt

    def __call__(self, fetched: Fetched) -> None:
        request, ctx, acls = self._request, self._ctx, self._acls
        connection, access = request.connection, ctx.access
        waiting = connection.waiting  # read once: the thread that sees the connection end may clear it
        if waiting is not None and waiting.is_completed:
            connection.waiting = None
        if access is not None and (acls is None or access.authorizer.version() is not acls):
            fetched = _still_allowed(request, fetched, self._params, ctx)  # it may have waited for minutes
        results = [*fetched, *self._refused]
        if ctx.quotas.active and _is_throttled(request, results, self._fetch, ctx, is_exempt=self._is_exempt):
            return
        if request.api_version < _ZSTD_FROM:
            results = for_older_readers(results, request.api_version, ctx)
            if request.api_version < BATCHES_FROM:
                convert_and_respond(request, results, self._params, ctx)
                return
        answer(request, self._fetch.finish(results), ctx)


def _still_allowed(request: Request, fetched: Fetched, params: FetchParams, ctx: ApiContext) -> Fetched:
    """The results, without what the principal may no longer read."""
    denied = _denied(request, params, ctx)
    if denied is None:
        return fetched
    error = Errors.TOPIC_AUTHORIZATION_FAILED
    return [
        (
            wanted,
            FetchedPartition(result.partition, error) if denied(wanted.topic_partition.topic) else result,
        )
        for wanted, result in fetched
    ]


def _all_denied(_topic: str) -> bool:
    return True


def _denied(request: Request, params: FetchParams, ctx: ApiContext) -> Callable[[str], bool] | None:
    """Whether the request may not read a topic; None: it may read all. A follower needs CLUSTER_ACTION, a
    consumer READ on each topic.
    """
    access = ctx.access
    if access is None:
        return None
    if params.replica_id >= 0:
        return None if cluster_allowed(ctx, request, AclOperation.CLUSTER_ACTION) else _all_denied
    last_topic, is_last_denied = "", False

    def denied(topic: str) -> bool:
        nonlocal last_topic, is_last_denied
        if topic != last_topic:  # most partitions follow another one of their topic
            last_topic = topic
            is_last_denied = not access.allows(request, AclOperation.READ, ResourceType.TOPIC, topic)
        return is_last_denied

    return denied


def _wanted(asked: FetchRequest, ctx: ApiContext) -> list[FetchEntry]:
    """Each requested partition once, by its last mention. The topic name is empty if its id is not
    known here.
    """
    all_: list[FetchEntry] = []
    for key, partitions in asked.topics:
        if isinstance(key, str):
            name, topic_id = key, ZERO_UUID
        else:
            name, topic_id = ctx.metadata_cache.topic_name(key) or "", key
        for index, epoch, offset, last_epoch, log_start, max_bytes in partitions:
            topic_partition = TopicPartition(name, index)
            all_.append(
                FetchEntry(topic_partition, topic_id, offset, max_bytes, epoch, last_epoch, log_start)
            )
    if len(all_) <= 1:
        return all_
    once = {wanted.key: wanted for wanted in all_}
    return all_ if len(once) == len(all_) else list(once.values())


def _resolved(entry: FetchEntry, ctx: ApiContext) -> FetchEntry:
    """A session's partition with its topic name, if that has become known."""
    name = ctx.metadata_cache.topic_name(entry.topic_id)
    if name is None:
        return entry
    return entry._replace(topic_partition=TopicPartition(name, entry.topic_partition.partition))


def _params(request: Request, asked: FetchRequest, ctx: ApiContext) -> FetchParams:
    max_bytes, min_bytes = min(asked.max_bytes, ctx.config.int("fetch.max.bytes")), asked.min_bytes
    if request.api_version < BATCHES_FROM:
        max_bytes = min(max_bytes, MOST_BYTES)
        min_bytes = min(min_bytes, max_bytes)
    max_wait_ms = min(asked.max_wait_ms, _LONGEST_WAIT_MS)
    if ends_ns := request.connection.session_ends_ns:  # no records are for a session that has expired
        max_wait_ms = min(max_wait_ms, max(0, (ends_ns - time.monotonic_ns()) // 1_000_000))
    if ctx.quotas.active and asked.replica_id < 0:
        most = ctx.quotas.most_fetched(request)
        if most is not None:
            max_bytes = min(max_bytes, most)
            min_bytes = min(min_bytes, max_bytes)
    of_consumer = asked.replica_id < 0
    committed_only = of_consumer and asked.isolation_level == READ_COMMITTED
    or_follower = of_consumer and request.api_version >= _FOLLOWERS_FROM
    client = None
    if asked.rack and or_follower and ctx.replica_manager.reader.selector is not None:
        client = Client(asked.rack, request.connection.listener_name)
    return FetchParams(
        asked.replica_id,
        asked.replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        committed_only,
        or_follower,
        client,
    )


def _is_throttled(
    request: Request, results: Fetched, fetch: FetchContext, ctx: ApiContext, *, is_exempt: bool
) -> bool:
    """Records the fetch; followers are exempt. If a quota is used up, sends an empty response: the reader gets
    the records when it asks again.
    """
    if is_exempt:
        ctx.quotas.exempt(request)
        return False
    throttle_ms = ctx.quotas.of_fetch(request, response_bytes(fetch.news_of(results)))
    if not throttle_ms:
        return False
    ctx.replica_manager.traffic.bytes_out -= sum(
        result.records.size for _, result in results if result.records is not None
    )
    request.respond(frame(request, fetch.throttled(), ctx, throttle_ms))
    return True


def response_bytes(results: Fetched) -> int:
    """About as many bytes as Kafka counts for a response: its records, and what surrounds them."""
    size = _RESPONSE_BYTES
    topic: TopicKey | None = None
    for wanted, result in results:
        if wanted.topic != topic:
            topic = wanted.topic
            size += _TOPIC_BYTES
        size += _PARTITION_BYTES + (0 if result.records is None else result.records.size)
        if result.aborted:
            size += _ABORTED_BYTES * len(result.aborted)
    return size
