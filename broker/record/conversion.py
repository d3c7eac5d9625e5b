"""Converts message sets of magic 0 and 1 to record batches, for clients and in logs, and batches to message sets.

Both ways read every record in Python: 2 to 4 µs each. So they are for handler threads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import assemble, each_record
from broker.record.compression import DEFAULT_MAX_BYTES, ZSTD, Bytes
from broker.record.header import (
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    batch_size_at,
)
from broker.record.message_set import (
    Message,
    begins_old,
    decompressed,
    each_inner,
    each_message,
    each_within,
    last_offset_in,
    old_bytes,
    wrapped,
    write_message,
)
from broker.record.records import LONG_MAX, encode_varint
from broker.record.validator import MOST_RECORDS, BatchRules

_NULL: Final = 1  # -1 as a varint
_NO_HEADERS: Final = 0
_PIECE_BYTES: Final = 1 << 20
_GROUP_BYTES: Final = 16 * 1024
_LONG_MIN: Final = -LONG_MAX - 1
_FURTHEST_OFFSET: Final = (1 << 31) - 1


def up_converted(records: memoryview, rules: BatchRules) -> bytes | None:
    """One record batch with the records of a message set, at offset 0, with the topic's codec, or that of the messages.
    None if there is no whole message.

    The limit of a message's size is for each message as it was sent; whoever appends the batch applies it to that, too.
    It is compressed here once and for all, because a plain set may be larger than the limit and its batch smaller.
    Messages without time keep none (-1). Raises KafkaError as :func:`.message_set.each_message` and ``each_inner``;
    also INVALID_RECORD for messages of both magics and for more than one message if any is compressed,
    INVALID_TIMESTAMP for a negative time, MESSAGE_TOO_LARGE for too many records.
    """
    messages = each_message(records, rules.max_message_bytes)
    first = next(messages, None)
    if first is None:
        return None
    codec = first.codec_id
    if codec:
        if next(messages, None) is not None:
            raise KafkaError(Errors.INVALID_RECORD, "more than one compressed message")
        messages = each_inner(first, rules.max_inside_bytes)
    else:
        messages = _all_plain(first, messages)
    return _batch_of(messages, codec if rules.target_codec is None else rules.target_codec, rules)


def _all_plain(first: Message, rest: Iterator[Message]) -> Iterator[Message]:
    for message in chain((first,), rest):
        if message.codec_id:
            raise KafkaError(Errors.INVALID_RECORD, "a compressed message among others")
        if message.magic != first.magic:
            raise KafkaError(
                Errors.INVALID_RECORD, f"messages of magic {first.magic} and {message.magic} in one request"
            )
        yield message


def _batch_of(messages: Iterator[Message], codec: int, rules: BatchRules) -> bytes:
    batch = _Batch(codec, NO_EPOCH)
    most_bytes = rules.max_inside_bytes
    for offset, message in enumerate(messages):
        timestamp = message.timestamp
        if timestamp < NO_TIMESTAMP:
            raise KafkaError(Errors.INVALID_TIMESTAMP, f"a message has the negative timestamp {timestamp}")
        # Kafka takes a time as the client's, whatever its type; without one, the topic's rules judge the type.
        batch.add(offset, message, append_time=message.is_log_append_time and timestamp == NO_TIMESTAMP)
        if batch.count > MOST_RECORDS:
            raise KafkaError(Errors.MESSAGE_TOO_LARGE, f"more than the {MOST_RECORDS} records of a batch")
        if len(batch.body) > most_bytes:
            raise KafkaError(Errors.MESSAGE_TOO_LARGE, f"more than {most_bytes} bytes of messages")
    return batch.assembled(rules.level)


class _Batch:
    """A record batch of messages that are added one by one, at rising offsets. Only their bytes are kept."""

    def __init__(self, codec: int, leader_epoch: int) -> None:
        self._attributes = codec
        self._leader_epoch = leader_epoch
        self._base_offset = self._last_offset = 0
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP
        self.body = bytearray()
        self.count = 0

    def add(self, offset: int, message: Message, *, append_time: bool) -> None:
        timestamp = message.timestamp
        if append_time:
            self._attributes |= LOG_APPEND_TIME_FLAG
        if not self.count:
            self._base_offset, self._base_timestamp = offset, timestamp
        self._last_offset = offset
        self._max_timestamp = max(self._max_timestamp, timestamp)
        delta = _as_int64(timestamp - self._base_timestamp)
        _write_record(self.body, delta, offset - self._base_offset, message)
        self.count += 1

    def assembled(self, level: int | None = None) -> bytes:
        header = BatchHeader(
            self._base_offset,
            0,
            self._leader_epoch,
            MAGIC,
            0,
            self._attributes,
            self._last_offset - self._base_offset,
            self._base_timestamp,
            self._max_timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            self.count,
        )
        return assemble(header, self.body, level)


def _write_record(out: bytearray, timestamp_delta: int, offset_delta: int, message: Message) -> None:
    fields = bytearray(b"\0")
    encode_varint(timestamp_delta, fields)
    encode_varint(offset_delta, fields)
    for field in (message.key, message.value):
        if field is None:
            fields.append(_NULL)
        else:
            encode_varint(len(field), fields)
            fields += field
    fields.append(_NO_HEADERS)
    encode_varint(len(fields), out)
    out += fields


def _as_int64(time: int) -> int:
    """The time, or what clients add up to it in 64 bits: a batch has only its difference from another one."""
    return time if _LONG_MIN <= time <= LONG_MAX else (time - _LONG_MIN) % (1 << 64) + _LONG_MIN


class Converted(NamedTuple):
    """Messages, and the offset from which the reader has to go on."""

    messages: bytes
    next_offset: int


def down_converted(
    view: memoryview,
    header: BatchHeader,
    magic: int,
    *,
    first_offset: int,
    most_bytes: int,
    position: int = 0,
) -> Converted:
    """The messages of ``magic`` 0 or 1 for the whole batch at ``position``; none for a transaction marker.

    A compressed batch becomes one wrapper, with all its records, unless all come before ``first_offset``: compaction
    may leave such a batch, and a reader that gets nothing new would ask for it again. Of a plain one, the records
    from ``first_offset`` on become messages, as many as fit in ``most_bytes``, but at least one. Headers, sequences
    and producers are lost, and with magic 0 also times.

    Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd, CORRUPT_MESSAGE.
    """
    next_offset = header.next_offset
    if header.is_control:
        return Converted(b"", next_offset)
    codec = header.codec_id
    if codec == ZSTD:
        raise KafkaError(
            Errors.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd at offset {header.base_offset} needs magic 2 (KIP-110)",
        )
    append_time = header.is_log_append_time
    attributes = LOG_APPEND_TIME_FLAG if append_time else 0
    is_relative = bool(codec and magic)
    out = bytearray()
    base, last, latest = 0, -1, NO_TIMESTAMP
    for record in each_record(view, header, position):
        if not codec and record.offset < first_offset:
            continue
        before = len(out)
        if is_relative and not before:
            base = record.offset
        timestamp = _as_int64(record.timestamp)
        write_message(out, magic, record.offset - base, timestamp, record.key, record.value, attributes)
        if not codec and before and len(out) > most_bytes:
            del out[before:]
            next_offset = record.offset
            break
        last, latest = record.offset, max(latest, timestamp)
    if codec and last < first_offset:
        return Converted(b"", next_offset)
    if codec:
        return Converted(wrapped(out, magic, codec, last, latest, append_time=append_time), next_offset)
    return Converted(bytes(out), next_offset)


class OldPart:
    """The messages of magic 0 and 1 at the beginning of a segment or of what a leader sent; batches may follow.

    ``read`` returns so many bytes from a position, or fewer at the end. ``position`` is where the messages end that
    were iterated so far.
    """

    def __init__(self, read: Callable[[int, int], Bytes], size: int) -> None:
        self._read = read
        self._size = size
        self.position = 0

    def __iter__(self) -> Iterator[Message]:
        """The whole messages, a piece at a time. Raises KafkaError as :func:`.message_set.each_message`."""
        wanted = _PIECE_BYTES
        while self.position < self._size:
            piece = memoryview(self._read(self.position, wanted))
            whole = old_bytes(piece)
            for message in each_message(piece[:whole]):
                self.position += message.size
                yield message
            if whole:
                wanted = _PIECE_BYTES
            else:
                left = min(self._size - self.position, DEFAULT_MAX_BYTES)
                wanted = batch_size_at(piece) if len(piece) >= LOG_OVERHEAD_BYTES else 0
                if not begins_old(piece) or not len(piece) < wanted <= left:
                    return


def upgraded(messages: Iterable[Message], next_offset: int = 0) -> Iterator[bytes]:
    """Record batches with the records of stored messages, at their offsets, which are ``next_offset`` or above, in the
    codecs of the messages.

    A wrapper becomes a batch; plain messages become batches of up to ``_GROUP_BYTES``. Leader epochs begin with these
    batches, as 0. Raises KafkaError as :func:`.message_set.each_inner`, and INVALID_RECORD if offsets do not rise.
    """
    group: list[Message] = []
    size = 0
    last_offset = next_offset - 1
    try:
        for message in messages:
            if group and (message.codec_id or size >= _GROUP_BYTES or not _fit_together(group[0], message)):
                yield _stored(group, 0, last_offset)[0]
                last_offset, group, size = group[-1].offset, [], 0
            if message.codec_id:
                batch, last_offset = _stored(_with_offsets(message), message.codec_id, last_offset)
                yield batch
            else:
                group.append(message)
                size += message.size
    except KafkaError:
        if group:
            yield _stored(group, 0, last_offset)[0]  # those before the damage are sound
        raise
    if group:
        yield _stored(group, 0, last_offset)[0]


def upgraded_fetch(records: memoryview, where: object) -> memoryview:
    """What a leader sent, with batches in place of the old messages at its beginning; what is behind them stays.

    Raises KafkaError(CORRUPT_MESSAGE) if no whole message comes before a damaged one.
    """
    part = OldPart(lambda position, size: records[position : position + size], len(records))
    out = bytearray()
    try:
        for batch in upgraded(part):
            out += batch
    except KafkaError as error:
        if not out:
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"{where}: fetched old messages: {error}") from error
        return memoryview(out)  # the damaged one is found again as the first of a later fetch
    if not out:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"{where}: fetched old messages without a whole one")
    out += records[part.position :]
    return memoryview(out)


def _fit_together(first: Message, message: Message) -> bool:
    """Whether a batch may have both: it has one time type, one time of appending and offsets near each other."""
    return (
        message.is_log_append_time == first.is_log_append_time
        and (not first.is_log_append_time or message.timestamp == first.timestamp)
        and message.offset - first.offset <= _FURTHEST_OFFSET
    )


def _with_offsets(wrapper: Message) -> Iterator[Message]:
    """The messages in a stored wrapper, with their offsets in the log."""
    inside = decompressed(wrapper, DEFAULT_MAX_BYTES)
    base = wrapper.offset - last_offset_in(inside) if wrapper.magic and wrapper.offset else 0
    time_type = wrapper.attributes & LOG_APPEND_TIME_FLAG
    for message in each_within(wrapper, inside):
        yield message._replace(offset=base + message.offset, attributes=time_type)


def _stored(messages: Iterable[Message], codec: int, last_offset: int) -> tuple[bytes, int]:
    """A batch of stored messages, and its last offset."""
    batch = _Batch(codec, 0)
    furthest = LONG_MAX
    for message in messages:
        if not batch.count:
            furthest = min(message.offset + _FURTHEST_OFFSET, LONG_MAX)
        if not last_offset < message.offset <= furthest:
            raise KafkaError(
                Errors.INVALID_RECORD, f"message at offset {message.offset} follows {last_offset}"
            )
        if message.timestamp < NO_TIMESTAMP:
            raise KafkaError(
                Errors.INVALID_TIMESTAMP, f"message at offset {message.offset} has time {message.timestamp}"
            )
        batch.add(message.offset, message, append_time=message.is_log_append_time)
        last_offset = message.offset
    return batch.assembled(), last_offset
