"""Messages of magic 0 and 1, Kafka's record formats before 0.11: reads and writes them.

A message set is a sequence of messages, big endian::

     0 offset     int64    16 magic      int8     then, with magic 1 only: timestamp int64
     8 length     int32    17 attributes int8     then key and value, each with an int32 length (-1: null)
    12 crc        uint32      (CRC-32 of everything from ``magic`` on)

``length`` counts what follows it. A wrapper is a message with a codec in its attributes; its value is a
compressed message set. Inside a wrapper of magic 1 offsets count from the first message, and the wrapper has the
offset of the last one. A wrapper in a wrapper is refused. Source: Kafka 3.9, message formats v0 and v1 (see KIP-31
and KIP-32).

:mod:`.conversion` turns message sets into record batches and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from broker.protocol.errors import Errors, KafkaError
from broker.record.compression import (
    CODEC_IDS,
    Bytes,
    CompressionError,
    TooLargeInsideError,
    compress,
    decompress,
)
from broker.record.header import CODEC_MASK, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD_BYTES, NO_TIMESTAMP
from broker.record.old_lz4 import with_old_checksum, with_right_checksum

LAST_OLD_MAGIC: Final = 1
MAGIC_AT: Final = 16
# The smallest message after its offset and length: no timestamp, key and value null.
LEAST_BYTES: Final = 14
_BODY_AT: Final = 18  # after the attributes
_CRC_FROM: Final = 16
_LZ4: Final = CODEC_IDS["lz4"]
_HEAD: Final = Struct(">qiIbb")
_HEAD_V1: Final = Struct(">qiIbbq")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_CRC: Final = Struct(">I")


class Message(NamedTuple):
    """A message. ``timestamp`` is in ms, -1 with magic 0. ``size`` is its length with offset and length fields."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    size: int

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether a broker set the timestamp. Magic 0 has none."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_FLAG)


def begins_old(records: Bytes) -> bool:
    """Whether the records, if they are valid, begin with a message of magic 0 or 1."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] <= LAST_OLD_MAGIC


def old_bytes(view: Bytes) -> int:
    """How many bytes the whole messages of magic 0 and 1 at the beginning take. Stops before an impossible length."""
    position, end = 0, len(view)
    while end - position > MAGIC_AT and view[position + MAGIC_AT] <= LAST_OLD_MAGIC:
        (length,) = _INT32.unpack_from(view, position + 8)
        size = length + LOG_OVERHEAD_BYTES
        if length < LEAST_BYTES or size > end - position:
            break
        position += size
    return position


def each_message(view: memoryview, most_bytes: int | None = None) -> Iterator[Message]:
    """The messages of a set, without those inside wrappers. An incomplete last one is skipped, as in Kafka.

    Raises KafkaError: CORRUPT_MESSAGE for an impossible length or magic, or a wrong checksum, INVALID_RECORD if
    lengths inside a message do not add up, MESSAGE_TOO_LARGE for a message of more than ``most_bytes``.
    """
    position, end = 0, len(view)
    while end - position >= LOG_OVERHEAD_BYTES:
        (length,) = _INT32.unpack_from(view, position + 8)
        if length < LEAST_BYTES:
            raise KafkaError(Errors.CORRUPT_MESSAGE, f"a message of {length} bytes is less than the smallest")
        size = length + LOG_OVERHEAD_BYTES
        if size > end - position:
            return
        if most_bytes is not None and size > most_bytes:
            raise KafkaError(
                Errors.MESSAGE_TOO_LARGE, f"message of {size} bytes exceeds max.message.bytes={most_bytes}"
            )
        yield _read_message(view, position, size)
        position += size


def _read_message(view: memoryview, position: int, size: int) -> Message:
    offset, _, crc, magic, attributes = _HEAD.unpack_from(view, position)
    if not 0 <= magic <= LAST_OLD_MAGIC:
        code = Errors.INVALID_RECORD if magic == LAST_OLD_MAGIC + 1 else Errors.CORRUPT_MESSAGE
        raise KafkaError(code, f"a message of magic {magic} stands among those of magic 0 and 1")
    end = position + size
    if crc32(view[position + _CRC_FROM : end]) != crc:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"message at offset {offset} fails its CRC")
    at = position + _BODY_AT
    timestamp = NO_TIMESTAMP
    if magic:
        if end - at < 16:  # the timestamp and two lengths
            raise KafkaError(Errors.INVALID_RECORD, f"message at offset {offset} ends early")
        (timestamp,) = _INT64.unpack_from(view, at)
        at += 8
    key, at = _read_bytes(view, at, end)
    value, at = _read_bytes(view, at, end)
    return Message(offset, magic, attributes, timestamp, key, value, size)


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    left = end - position - 4
    if left < 0:
        raise KafkaError(Errors.INVALID_RECORD, "a message ends before its key or value")
    (length,) = _INT32.unpack_from(view, position)
    position += 4
    if length < 0:
        return None, position
    if length > left:
        raise KafkaError(Errors.INVALID_RECORD, f"a key or value claims {length} bytes, {left} are left")
    return view[position : position + length], position + length


def each_inner(wrapper: Message, max_bytes: int) -> Iterator[Message]:
    """The messages in a wrapper that decompresses to at most ``max_bytes``, as :func:`each_within`. Raises KafkaError
    as that and :func:`decompressed`.
    """
    return each_within(wrapper, decompressed(wrapper, max_bytes))


def each_within(wrapper: Message, inside: memoryview) -> Iterator[Message]:
    """The messages of the set ``inside`` a wrapper, with the wrapper's time if a broker set it. Offsets are as they
    are written inside.

    Raises KafkaError as :func:`each_message`; INVALID_RECORD also for a wrapper in the wrapper, for another magic
    than the wrapper's, and for no messages.
    """
    inner = None
    for inner in each_message(inside):
        if inner.magic != wrapper.magic:
            raise KafkaError(
                Errors.INVALID_RECORD,
                f"a message of magic {inner.magic} is in a wrapper of magic {wrapper.magic}",
            )
        if inner.codec_id:
            raise KafkaError(Errors.INVALID_RECORD, "a compressed message contains a compressed message")
        yield inner._replace(timestamp=wrapper.timestamp) if wrapper.is_log_append_time else inner
    if inner is None:
        raise KafkaError(Errors.INVALID_RECORD, "a compressed message contains no messages")


def last_offset_in(view: memoryview) -> int:
    """The offset of the last whole message of a set, 0 if there is none. Reads lengths only."""
    position, end, offset = 0, len(view), 0
    while end - position >= LOG_OVERHEAD_BYTES:
        (length,) = _INT32.unpack_from(view, position + 8)
        size = length + LOG_OVERHEAD_BYTES
        if length < LEAST_BYTES or size > end - position:
            break
        (offset,) = _INT64.unpack_from(view, position)
        position += size
    return offset


def decompressed(wrapper: Message, max_bytes: int) -> memoryview:
    """The message set in a wrapper.

    Raises KafkaError: INVALID_RECORD for invalid compressed data, MESSAGE_TOO_LARGE for more than ``max_bytes`` of
    it, UNSUPPORTED_COMPRESSION_TYPE for a codec that does not exist.
    """
    codec = wrapper.codec_id
    if codec > CODEC_IDS["zstd"]:
        raise KafkaError(Errors.UNSUPPORTED_COMPRESSION_TYPE, f"a message has compression codec {codec}")
    if codec > _LZ4 or wrapper.value is None:
        what = "no value" if wrapper.value is None else "zstd, which needs magic 2"
        raise KafkaError(Errors.INVALID_RECORD, f"a compressed message of magic {wrapper.magic} has {what}")
    value: Bytes = wrapper.value
    try:
        if codec == _LZ4 and wrapper.magic == 0:
            value = with_right_checksum(value)
        return memoryview(decompress(codec, value, max_bytes))
    except TooLargeInsideError as error:
        raise KafkaError(Errors.MESSAGE_TOO_LARGE, str(error)) from error
    except CompressionError as error:
        raise KafkaError(Errors.INVALID_RECORD, str(error)) from error


def write_message(  # noqa: PLR0917 - the fields in the order of the format
    out: bytearray,
    magic: int,
    offset: int,
    timestamp: int,
    key: Bytes | None,
    value: Bytes | None,
    attributes: int = 0,
) -> None:
    """Appends a message of ``magic`` 0 or 1. Magic 0 has neither the timestamp nor its type."""
    begin = len(out)
    if magic:
        out += _HEAD_V1.pack(offset, 0, 0, magic, attributes, timestamp)
    else:
        out += _HEAD.pack(offset, 0, 0, magic, attributes & CODEC_MASK)
    for field in (key, value):
        if field is None:
            out += _INT32.pack(-1)
        else:
            out += _INT32.pack(len(field))
            out += field
    _INT32.pack_into(out, begin + 8, len(out) - begin - LOG_OVERHEAD_BYTES)
    with memoryview(out) as view:
        crc = crc32(view[begin + _CRC_FROM :])
    _CRC.pack_into(out, begin + LOG_OVERHEAD_BYTES, crc)


def wrapped(
    inside: Bytes, magic: int, codec_id: int, offset: int, timestamp: int, *, append_time: bool
) -> bytes:
    """A wrapper of the message set ``inside``. ``offset`` is its last message's, ``timestamp`` its highest."""
    packed = compress(codec_id, inside)
    if codec_id == _LZ4 and magic == 0:
        packed = with_old_checksum(packed)
    out = bytearray()
    attributes = codec_id | (LOG_APPEND_TIME_FLAG if append_time else 0)
    write_message(out, magic, offset, timestamp, None, packed, attributes)
    return bytes(out)
