"""Fetch 0 to 3, whose readers know only messages of magic 0 and 1: converts record batches for them (KIP-283).

A handler thread reads the log piece by piece and converts it, until the answer is as large as the reader or
``MOST_BYTES`` allows. So the memory for an answer is what the reader asked for, and one batch, of which at most
``MOST_BYTES`` are converted. The rest is converted when the reader asks for it.
"""

from __future__ import annotations

from random import randrange
from typing import Final

from broker.log.log import Log
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fetch_messages import FetchedPartition, encode_converted
from broker.protocol.fetch_requests import TopicKey
from broker.record.conversion import Converted, down_converted
from broker.record.header import crc_is_valid, iter_batches
from broker.replication.delayed_fetch import Fetched, FetchEntry, FetchParams
from broker.server.apis.context import ApiContext

MOST_BYTES: Final = 1 << 20
"""The most that one answer converts, unless one batch alone is larger. It stays in memory until it is sent."""
_PIECE_BYTES: Final = 128 * 1024
# So much of transaction markers is skipped in search of records: a second's work. The next request goes on from there.
_MOST_SKIPPED_BYTES: Final = 64 << 20
# How long an answer without messages waits: behind the last record there may be only a transaction marker, which is
# data to wait for, but not to send. Its reader would ask again at once.
_NOTHING_MS: Final = 500
_MAGIC_1_FROM: Final = 2
_STORAGE_ERROR_FROM: Final = 6  # the first version whose readers all know KAFKA_STORAGE_ERROR
_SOFT_LIMITS_FROM: Final = 3  # from here on a message may be larger than its partition's limit (KIP-74)

_Answer = list[tuple[FetchEntry, FetchedPartition, bytes]]


def for_older_readers(results: Fetched, version: int, ctx: ApiContext) -> Fetched:
    """The results as readers before Fetch 10 get them, who do not know zstd and perhaps not KAFKA_STORAGE_ERROR."""
    return [(wanted, _for_older_reader(wanted, result, version, ctx)) for wanted, result in results]


def _for_older_reader(
    wanted: FetchEntry, result: FetchedPartition, version: int, ctx: ApiContext
) -> FetchedPartition:
    error = result.error
    log = ctx.replica_manager.local_log(wanted.topic_partition)
    # How a topic is compressed is for those only who may read it.
    if (
        log is not None
        and log.config.compression_type == "zstd"
        and error is not Errors.TOPIC_AUTHORIZATION_FAILED
    ):
        return FetchedPartition(result.partition, Errors.UNSUPPORTED_COMPRESSION_TYPE)
    known = _known_error(error, version)
    return result if known is error else FetchedPartition(result.partition, known)


def _known_error(error: Errors, version: int) -> Errors:
    """The error, or one after which a reader that does not know it asks again, as in Kafka."""
    if error is Errors.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_FROM:
        return Errors.NOT_LEADER_OR_FOLLOWER
    return error


def convert_and_respond(request: Request, results: Fetched, params: FetchParams, ctx: ApiContext) -> None:
    """Answers from a handler's thread with the converted records; if none is free, with none, a little later."""
    expected = any(result.records is not None for _, result in results)

    def work() -> None:
        answer = _converted(request, results, params, ctx)
        is_empty = all(result.error is Errors.NONE and not messages for _, result, messages in answer)
        _respond(request, answer, params.max_wait_ms if expected and is_empty else 0, ctx)

    if not ctx.submit_for(request, work, dear=True, asks_only=True):
        nothing = [(wanted, result, b"") for wanted, result in results]
        _respond(request, nothing, _NOTHING_MS, ctx)


def _respond(request: Request, answer: _Answer, wait_ms: int, ctx: ApiContext) -> None:
    by_topic: dict[TopicKey, list[tuple[FetchedPartition, bytes]]] = {}
    for wanted, result, messages in answer:
        by_topic.setdefault(wanted.topic, []).append((result, messages))
    payload = encode_converted(request.api_version, request.correlation_id, by_topic)
    if wait_ms > 0:
        ctx.timer.add(min(wait_ms, _NOTHING_MS), lambda: request.respond(payload))
    else:
        request.respond(payload)


def _converted(request: Request, results: Fetched, params: FetchParams, ctx: ApiContext) -> _Answer:
    magic = 0 if request.api_version < _MAGIC_1_FROM else 1
    is_hard = request.api_version < _SOFT_LIMITS_FROM
    # These readers name their partitions in the same order each time, so the first one would take all the room.
    first = randrange(len(results)) if results else 0
    answer: _Answer = []
    left = params.max_bytes
    for wanted, result in (*results[first:], *results[:first]):
        told, messages = result, b""
        most = max(0, min(wanted.max_bytes, left))
        must = left == params.max_bytes
        if result.error is Errors.NONE and (most or must):
            try:
                log = _log_of(wanted, params, ctx)
                end = log.log_end_offset if params.from_follower else result.high_watermark
                messages = _read_on(
                    log,
                    wanted.fetch_offset,
                    end,
                    ctx,
                    magic=magic,
                    most_bytes=most,
                    at_least_one=must,
                    whole_batch=must and not is_hard,
                )
            except KafkaError as error:
                told = FetchedPartition(result.partition, _known_error(error.error_code, request.api_version))
            if is_hard:  # from the part of a message the reader sees that its limit is too low
                messages = messages[: max(0, wanted.max_bytes)]
        left -= len(messages)
        answer.append((wanted, told, messages))
    return answer


def _log_of(wanted: FetchEntry, params: FetchParams, ctx: ApiContext) -> Log:
    log = ctx.replica_manager.local_log(wanted.topic_partition)
    if log is None:
        raise KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)
    if not params.from_follower and not log.config.message_downconversion_enable:
        raise KafkaError(Errors.UNSUPPORTED_VERSION)
    return log


def _read_on(
    log: Log,
    offset: int,
    end_offset: int,
    ctx: ApiContext,
    *,
    magic: int,
    most_bytes: int,
    at_least_one: bool,
    whole_batch: bool,
) -> bytes:
    """As :func:`read_converted`, from where an earlier request has ended its search."""
    generation = log.generation
    begin = ctx.passed_over.begin(log, offset)
    found = read_converted(
        log,
        offset,
        end_offset,
        magic=magic,
        most_bytes=most_bytes,
        at_least_one=at_least_one,
        whole_batch=whole_batch,
        begin=begin,
    )
    ctx.passed_over.note(log, offset, generation, found.next_offset)
    return found.messages


def read_converted(
    log: Log,
    offset: int,
    end_offset: int,
    *,
    magic: int,
    most_bytes: int,
    at_least_one: bool,
    whole_batch: bool = False,
    begin: int = 0,
    most_skipped: int = _MOST_SKIPPED_BYTES,
) -> Converted:
    """The records from ``offset`` to ``end_offset`` as messages of ``magic``, in at most ``most_bytes``; and the offset
    before which there is none. It is known that there is none before ``begin``.

    With ``at_least_one``, the first message or the first compressed batch may be larger. With ``whole_batch`` too, the
    first batch may be, as in Kafka: a reader with a low limit does not read it again for each of its messages.
    Transaction markers are left out. An error is raised only if no message comes before it. Raises KafkaError:
    CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
    """
    out = bytearray()
    start, skipped = offset, 0
    passed = offset = max(offset, begin)
    try:
        while offset < end_offset and len(out) < max(most_bytes, 1) and skipped < most_skipped:
            view = log.reader.read_bytes(offset, min(max(most_bytes - len(out), 1), _PIECE_BYTES), end_offset)
            if not view:
                break
            position, before = 0, len(out)
            for header in iter_batches(view):
                if not crc_is_valid(view, header, position):
                    raise KafkaError(
                        Errors.CORRUPT_MESSAGE, f"batch at offset {header.base_offset} fails its checksum"
                    )
                messages, offset = down_converted(
                    view,
                    header,
                    magic,
                    first_offset=start,
                    most_bytes=max(most_bytes, MOST_BYTES)
                    if whole_batch and not out
                    else most_bytes - len(out),
                    position=position,
                )
                fits = len(out) + len(messages) <= most_bytes
                if messages and (fits or (at_least_one and not out)):
                    out += messages
                if not fits or offset < header.next_offset:
                    return Converted(bytes(out), passed)
                if not out:
                    passed = offset
                position += header.size_bytes
            if len(out) == before:
                skipped += len(view)
    except KafkaError:
        if not out:
            raise
    return Converted(bytes(out), passed)
