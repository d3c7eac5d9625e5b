"""Produce, on the Processor's thread: records go from the receive buffer to the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from broker.network.request_channel import Request, Verdict
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError, TooManyElements
from broker.protocol.leader_tags import NodeEndpoint
from broker.protocol.produce_messages import (
    ACKS_ALL,
    BATCHES_FROM,
    LEADERS_FROM,
    PartitionResponse,
    ProducedTopic,
    ProduceRequest,
    encode_one_response,
    encode_produce_response,
    parse_produce_request,
)
from broker.record.header import CODEC_MASK, HEADER_BYTES, TRANSACTIONAL_FLAG, batch_size_at, read_header
from broker.record.inspection import INLINE_PACKED_BYTES, inspect
from broker.record.message_set import begins_old
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import Access, allowed
from broker.server.admission import RULES
from broker.server.apis.context import ApiContext, why_absent
from broker.server.apis.current_leaders import CurrentLeaders
from broker.server.apis.produce_old import converted
from broker.server.apis.produce_verification import (
    Verified,
    begin_verified,
    has_several_producers,
    is_transactional,
    needs_answer,
    refused_by,
    verified_here,
    verify_first,
)
from broker.utils.topic_partition import TopicPartition

_RULE: Final = RULES[ApiKey.PRODUCE]
# Longer waits end after this time: the timer keeps a slot for every 10 ms tick with a waiting entry.
_LONGEST_WAIT_MS: Final = 300_000
_ACKS: Final = frozenset({ACKS_ALL, 0, 1})
_NULL_RECORDS: Final = PartitionResponse(Errors.INVALID_RECORD, message="no records in the request")
_TWICE: Final = PartitionResponse(
    Errors.INVALID_REQUEST, message="the request names this partition more than once"
)
_SEVERAL_BATCHES: Final = PartitionResponse(
    Errors.INVALID_RECORD, message="a produce request has one record batch for a partition, not several"
)
_ZSTD_TOO_EARLY: Final = PartitionResponse(
    Errors.UNSUPPORTED_COMPRESSION_TYPE, message="zstd needs Produce version 7 or later (KIP-110)"
)
_ATTRIBUTES_AT: Final = 22  # the low byte of the batch's attributes
_INLINE_BYTES: Final = HEADER_BYTES + INLINE_PACKED_BYTES
_ZSTD: Final = 4
_ZSTD_FROM: Final = 7
# Of a batch's attributes: what needs a closer look.
_UNUSUAL: Final = CODEC_MASK | TRANSACTIONAL_FLAG
# Records that must all be checked, at 1.2 µs each: up to this many cost no more than their compression,
# during which other threads can run.
_FEW_RECORDS: Final = 1_000
# The question of each topic of each request; looking them up in their classes costs as much as the answer.
_WRITE: Final = AclOperation.WRITE
_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = PartitionResponse(Errors.TOPIC_AUTHORIZATION_FAILED)
_TRANSACTION_DENIED: Final = PartitionResponse(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_NO_TRANSACTIONAL_ID: Final = PartitionResponse(
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message="transactional records need a transactional id"
)
_SEVERAL_PRODUCERS: Final = PartitionResponse(
    Errors.INVALID_PRODUCER_ID_MAPPING, message="transactional records contained more than one producer ID"
)
_BAD_ACKS: Final = PartitionResponse(Errors.INVALID_REQUIRED_ACKS, message="acks must be -1 (all), 0 or 1")
Responses = Mapping[TopicPartition, PartitionResponse]


def handle(request: Request, ctx: ApiContext) -> Verdict:
    """Appends and responds, or waits in the purgatory. Recompression and long batch checks go to a
    handler thread, and so does the conversion of old clients' messages.
    """
    if request.api_version < BATCHES_FROM:
        return ctx.queue_for(request, lambda: _handle_old(request, ctx), dear=True)
    try:
        message = parse_produce_request(request.body, request.api_version, _RULE.here_elements)
    except TooManyElements:
        return ctx.queue_for(request, lambda: _handle_many(request, ctx), dear=True)
    if _is_refused(request, message, ctx):
        return Verdict.SERVED
    verified: Verified | None = None
    if message.transactional_id is not None:
        writable = _writable(request, message, ctx.access, {}, told=False)
        verified = begin_verified(message.transactional_id, writable, ctx)
        if needs_answer(verified):
            known = verified_here(request, verified, ctx)
            if known is None:
                return _verify(request, message, verified, ctx)
            verified = known
    if _append(request, message, ctx, inline=True, verified=verified):
        return Verdict.SERVED
    is_dear = _is_dear(message, ctx)
    return ctx.queue_for(request, lambda: _append_here(request, ctx, verified), dear=is_dear)


def _is_dear(message: ProduceRequest, ctx: ApiContext) -> bool:
    """Whether the append computes for long. Compression releases the interpreter's lock, so several requests
    may compress; iterating over records holds it.
    """
    walked = _records_to_walk(message, ctx)
    return walked is None or walked > _FEW_RECORDS


def _handle_many(request: Request, ctx: ApiContext) -> None:
    """Handles a request with many partitions on a handler's thread. Raises :class:`ProtocolError`."""
    message = parse_produce_request(request.body, request.api_version, _RULE.most_elements)
    if _is_refused(request, message, ctx):
        return
    verified: Verified | None = None
    if message.transactional_id is not None:
        writable = _writable(request, message, ctx.access, {}, told=False)
        verified = begin_verified(message.transactional_id, writable, ctx)
        if needs_answer(verified):
            known = verified_here(request, verified, ctx)
            if known is None:
                _verify(request, message, verified, ctx)
                return
            verified = known
    _append(request, message, ctx, inline=False, verified=verified)


def _handle_old(request: Request, ctx: ApiContext) -> None:
    """Handles a request of an old client on a handler's thread. Raises :class:`ProtocolError`."""
    message = parse_produce_request(request.body, request.api_version, _RULE.most_elements)
    if _is_refused(request, message, ctx):
        return
    writable = {topic for topic, _ in _writable(request, message, ctx.access, {}, told=False)}
    topics, answered = converted(message.topics, writable, ctx)
    current = ProduceRequest(message.transactional_id, message.acks, message.timeout_ms, topics)
    _append(request, current, ctx, inline=False, verified=answered)


def _verify(request: Request, message: ProduceRequest, verified: Verified, ctx: ApiContext) -> Verdict:
    """Has the coordinator verify what begins a transaction here. The append follows on a handler's thread."""
    request.keep()
    ctx.quotas.measure_elsewhere(request)
    is_dear = _is_dear(message, ctx)

    def append(outcome: Verified) -> None:
        if not ctx.submit_for(request, lambda: _append_here(request, ctx, outcome), dear=is_dear):
            # No handler is free: the producer retries.
            kept = parse_produce_request(request.body, request.api_version)
            refusal = refused_by(Errors.COORDINATOR_NOT_AVAILABLE)
            _answer(request, kept, dict.fromkeys(_partitions(kept), refusal), 0, ctx)

    verify_first(request, verified, append, ctx)
    return Verdict.QUEUED


def _is_refused(request: Request, message: ProduceRequest, ctx: ApiContext) -> bool:
    transactional_id = message.transactional_id
    if transactional_id is not None and not allowed(
        ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        _answer_all(request, message, _TRANSACTION_DENIED, ctx)
        return True
    if message.acks not in _ACKS:
        is_nobodys = transactional_id is None and is_transactional(message)
        _answer_all(request, message, _NO_TRANSACTIONAL_ID if is_nobodys else _BAD_ACKS, ctx)
        return True
    if transactional_id is not None and has_several_producers(message):
        _answer_all(request, message, _SEVERAL_PRODUCERS, ctx)
        return True
    return False


def _answer_all(
    request: Request, message: ProduceRequest, response: PartitionResponse, ctx: ApiContext
) -> None:
    throttle_ms = _throttle_ms(request, message, ctx)
    _answer(request, message, dict.fromkeys(_partitions(message), response), throttle_ms, ctx)


def _append_here(request: Request, ctx: ApiContext, verified: Verified | None) -> None:
    """Appends on a handler's thread, where the request has its own copy of the body."""
    message = parse_produce_request(request.body, request.api_version, _RULE.most_elements)
    _append(request, message, ctx, inline=False, verified=verified)


def _append(
    request: Request,
    message: ProduceRequest,
    ctx: ApiContext,
    *,
    inline: bool,
    verified: Verified | None,
) -> bool:
    """Appends the records. False, with nothing done, if a check takes too long for ``inline``."""
    entries: dict[TopicPartition, memoryview] = {}
    refused: dict[TopicPartition, PartitionResponse] = {}
    wrong: dict[TopicPartition, KafkaError] = {}  # counted once it is certain that nothing is checked again
    packed = unusual = 0
    topics = message.topics if ctx.access is None else _writable(request, message, ctx.access, refused)
    replica_manager = ctx.replica_manager
    for topic, partitions in topics:
        for index, records in partitions:
            topic_partition = TopicPartition(topic, index)
            flags = _unusual(records)
            unusual |= flags
            if topic_partition in entries or topic_partition in refused:
                # One response cannot acknowledge two writes, so neither is done.
                entries.pop(topic_partition, None)
                wrong.pop(topic_partition, None)
                refused[topic_partition] = _TWICE
            elif (refusal := _refusal(records, request.api_version)) is not None:
                refused[topic_partition] = refusal
            elif (partition := replica_manager.partition(topic_partition)) is None:
                refused[topic_partition] = PartitionResponse(why_absent(topic_partition, ctx))
            elif records is not None:
                if flags & CODEC_MASK:
                    packed += len(records)  # of all partitions together
                try:
                    if (
                        inline
                        and (packed > _INLINE_BYTES or partition.log.appender.needs_recompression(records))
                    ) or not inspect(records, ctx.depth, partition.log.rules, topic_partition, inline=inline):
                        return False
                except KafkaError as error:
                    wrong[topic_partition] = error
                    refused[topic_partition] = _NULL_RECORDS  # replaced below
                else:
                    entries[topic_partition] = records
    looks_transactional = unusual & TRANSACTIONAL_FLAG or topics is not message.topics
    if looks_transactional and message.transactional_id is None and is_transactional(message):
        _answer_all(request, message, _NO_TRANSACTIONAL_ID, ctx)
        return True
    if wrong or verified is not None:
        refused |= {tp: ctx.replica_manager.append_refused(tp, problem) for tp, problem in wrong.items()}
        refused |= _unverified(entries, verified)
    quotas = ctx.quotas
    size = quotas.size_of_produce(request, message.acks) if quotas.active else 0
    request.body = memoryview(b"")
    replica_manager.append_records(
        timeout_ms=min(message.timeout_ms, _LONGEST_WAIT_MS),
        required_acks=message.acks,
        entries=entries,
        callback=_ProduceAnswer(request, message, refused, size, ctx),
        guards=None if verified is None else verified.guards,
    )
    return True


@final
class _ProduceAnswer:
    """Answers a produce with what became of its records, once, on any thread. A class and no closure: compiled, the
    function around a closure keeps all that both of them use in an object.
    """

    __slots__ = ("_ctx", "_message", "_refused", "_request", "_size")

    def __init__(
        self,
        request: Request,
        message: ProduceRequest,
        refused: dict[TopicPartition, PartitionResponse],
        size: int,
        ctx: ApiContext,
    ) -> None:
        self._request = request
        self._message = message
        self._refused = refused
        self._size = size
        self._ctx = ctx

    def __call__(self, responses: Responses) -> None:
        request, message, refused, ctx = self._request, self._message, self._refused, self._ctx
        throttle_ms = ctx.quotas.of_produce(request, self._size, message.acks) if self._size else 0
        _answer(request, message, {**responses, **refused} if refused else responses, throttle_ms, ctx)


def _unverified(entries: dict[TopicPartition, memoryview], verified: Verified | None) -> Responses:
    """Takes the partitions out of ``entries`` whose transaction could not be verified; their responses."""
    if verified is None:
        return {}
    return {tp: response for tp, response in verified.refused.items() if entries.pop(tp, None) is not None}


def _writable(
    request: Request,
    message: ProduceRequest,
    access: Access | None,
    refused: dict[TopicPartition, PartitionResponse],
    *,
    told: bool = True,
) -> list[ProducedTopic]:
    """The topics that the principal may write; the others' partitions are ``refused``, in the log too if ``told``."""
    if access is None:
        return message.topics
    denied = set()
    for topic, _ in message.topics:
        if not access.allows(request, _WRITE, _TOPIC, topic, told=told):
            denied.add(topic)
    if not denied:
        return message.topics
    writable = []
    for topic, partitions in message.topics:
        if topic not in denied:
            writable.append((topic, partitions))
        else:
            refused |= {TopicPartition(topic, index): _DENIED for index, _ in partitions}
    return writable


def _unusual(records: memoryview | None) -> int:
    """The codec and the flag of transactions of the first batch. A message of magic 0 or 1, which is refused later, has
    a part of its time there.
    """
    if records is None or len(records) <= _ATTRIBUTES_AT:
        return 0
    flags = records[_ATTRIBUTES_AT] & _UNUSUAL
    return 0 if flags and begins_old(records) else flags


def _refusal(records: memoryview | None, version: int) -> PartitionResponse | None:
    """Kafka's checks before it reads the records: a single batch, and zstd only from version 7 on (except before
    version 3).
    """
    if records is None:
        return _NULL_RECORDS
    if len(records) < HEADER_BYTES:
        return None  # the log reports the error
    if HEADER_BYTES <= batch_size_at(records) <= len(records) - HEADER_BYTES:
        return _SEVERAL_BATCHES
    if (
        BATCHES_FROM <= version < _ZSTD_FROM
        and records[_ATTRIBUTES_AT] & CODEC_MASK == _ZSTD
        and not begins_old(records)
    ):
        return _ZSTD_TOO_EARLY
    return None


def _records_to_walk(message: ProduceRequest, ctx: ApiContext) -> int | None:
    """The number of records to check and recompress because of their topics' configs: as many as their
    batches claim, because no more are read. None if no config requires it.
    """
    count = None
    for topic, partitions in message.topics:
        for index, records in partitions:
            log = ctx.replica_manager.local_log(TopicPartition(topic, index))
            if log is not None and records is not None and log.appender.needs_recompression(records):
                count = (count or 0) + max(read_header(records).record_count, 0)
    return count


def _partitions(message: ProduceRequest) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, partitions in message.topics for index, _ in partitions]


def _throttle_ms(request: Request, message: ProduceRequest, ctx: ApiContext) -> int:
    if not ctx.quotas.active:
        return 0
    return ctx.quotas.of_produce(request, ctx.quotas.size_of_produce(request, message.acks), message.acks)


def _answer(
    request: Request, message: ProduceRequest, responses: Responses, throttle_ms: int, ctx: ApiContext
) -> None:
    if message.acks == 0:
        # No response is expected. Closing the connection is the only way to report an error, as in Kafka.
        failed = any(response.error is not Errors.NONE for response in responses.values())
        request.close_connection() if failed else request.respond_nothing()
        return
    version = request.api_version
    if len(message.topics) == 1 and len(message.topics[0][1]) == 1:  # the usual case
        topic, ((index, _),) = message.topics[0]
        (response,) = responses.values()
        if not response.error or version < LEADERS_FROM:
            request.respond_body(encode_one_response(version, topic, index, response, throttle_ms))
            return
    told, endpoints = _with_leaders(request, responses, ctx)
    topics = [
        (topic, [(index, told[TopicPartition(topic, index)]) for index, _ in partitions])
        for topic, partitions in message.topics
    ]
    request.respond_body(encode_produce_response(version, topics, throttle_ms, endpoints))


def _with_leaders(
    request: Request, responses: Responses, ctx: ApiContext
) -> tuple[Responses, Sequence[NodeEndpoint]]:
    """The responses, with the leaders of what this broker does not lead, and these leaders' addresses."""
    moved = [tp for tp, response in responses.items() if response.error is Errors.NOT_LEADER_OR_FOLLOWER]
    if not moved or request.api_version < LEADERS_FROM:
        return responses, ()
    leaders = CurrentLeaders(request, ctx)
    told = dict(responses)
    for topic_partition in moved:
        told[topic_partition] = _led_by(leaders.of(topic_partition), responses[topic_partition])
    return told, leaders.endpoints


def _led_by(leader: tuple[int, int] | None, response: PartitionResponse) -> PartitionResponse:
    start = response.log_start_offset
    return PartitionResponse(response.error, log_start_offset=start, message=response.message, leader=leader)
