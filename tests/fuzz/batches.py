"""The batches that clients and leaders send, as a leader or a follower takes them into its log.

The first byte chooses the topic's rules, the depth of the checks and who sent them. Checksums are made right: what
is fuzzed lies behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from crc32c import crc32c

from broker.protocol.errors import KafkaError
from broker.record import validator
from broker.record.compression import compress
from broker.record.conversion import down_converted, up_converted, upgraded_fetch
from broker.record.header import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header
from broker.record.inspection import Depth, inspect
from broker.record.message_set import wrapped, write_message
from broker.record.validator import AppendOrigin, BatchRules
from tests.fuzz.target import Target
from tests.support.valid_requests import some_records

_MOST: Final = 1 << 20
_OLD_BYTES: Final = 26  # of the smallest message of magic 0
_NOW_MS: Final = 1_700_000_000_000
_RULES: Final = (
    BatchRules(_MOST),
    BatchRules(_MOST, keys_required=True),
    BatchRules(_MOST, target_codec=0),
    BatchRules(_MOST, target_codec=4),
    BatchRules(_MOST, before_max_ms=1000, after_max_ms=1000),
    BatchRules(_MOST, log_append_time=True),
    BatchRules(100),
    BatchRules(_MOST, log_append_time=True, target_codec=1, keys_required=True),
)
_DEPTHS: Final = tuple(Depth)


def _sound(data: bytes) -> memoryview:
    """The batches with their right checksums, as far as their lengths lead."""
    records = bytearray(data)
    position = 0
    while position + HEADER_BYTES <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12], "big") + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= size <= len(records) - position:
            break
        crc = crc32c(records[position + CRC_START : position + size])
        records[position + CRC_START - 4 : position + CRC_START] = crc.to_bytes(4, "big")
        position += size
    return memoryview(records)


def _batch(data: bytes) -> None:
    """As LogAppender does it. What was accepted is accepted again, as followers and restarts do."""
    if not data:
        return
    mode, records = data[0], _sound(data[1:])
    rules = _RULES[mode % len(_RULES)]
    depth = _DEPTHS[(mode >> 3) % len(_DEPTHS)]
    if mode >= 1 << 6:
        inline = bool(mode & 1 << 5)
        if not inspect(records, depth, rules, "t-0", inline=inline):
            assert inline, "a handler must decide"
            assert inspect(records, depth, rules, "t-0", inline=False)
    headers = validator.check_batches(records, rules, AppendOrigin.CLIENT, _NOW_MS, "t-0")
    if validator.needs_recompression(headers, rules):
        records, headers = validator.recompress(records, headers, rules, "fuzz")
    if rules.log_append_time:
        headers = validator.stamp_append_time(records, headers, _NOW_MS)
    assert sum(header.size_bytes for header in headers) == len(records), "bytes are left over"
    assert all(header.record_count == header.last_offset_delta + 1 > 0 for header in headers)
    assert validator.check_fetched(records, "t-0") == headers, "a follower would not take what a leader took"


def _batch_seeds() -> Sequence[bytes]:
    plain = some_records(b"one", b"two", b"three")
    packed = []
    for codec in (1, 2, 3, 4):
        batch = bytearray(plain[:HEADER_BYTES] + bytes(compress(codec, plain[HEADER_BYTES:])))
        batch[8:12] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        batch[22] |= codec
        packed.append(bytes(batch))
    return [bytes([mode]) + batch for mode in (0, 1, 2, 3, 5, 64, 72, 80, 99) for batch in (plain, *packed)]


def _fetched(data: bytes) -> None:
    """What a follower gets from a leader, after which log end and in which epochs."""
    records = _sound(data[2:]) if data[:1] < b"\x80" else memoryview(bytearray(data[2:]))
    headers = validator.check_fetched(records, "t-0")
    if headers:
        end = data[1] % 8
        count = validator.check_follows(headers, end, range(1 << 20), "t-0")
        offsets = [end, *(header.next_offset for header in headers[:count])]
        assert offsets == sorted(offsets), "the log would go back"


def _fetched_seeds() -> Sequence[bytes]:
    one, other = some_records(b"one"), bytearray(some_records(b"two", b"three"))
    other[:8] = (1).to_bytes(8, "big")
    return [b"\0\0" + one + bytes(other), b"\x80\0" + one, b"\0\1" + bytes(other)]


def _sealed(data: bytes) -> memoryview:
    """The old messages with their right checksums, as far as their lengths lead."""
    records = bytearray(data)
    position = 0
    while position + _OLD_BYTES <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12], "big") + LOG_OVERHEAD_BYTES
        if not _OLD_BYTES <= size <= len(records) - position:
            break
        crc = crc32(records[position + 16 : position + size])
        records[position + 12 : position + 16] = crc.to_bytes(4, "big")
        position += size
    return memoryview(records)


def _old_messages(data: bytes) -> None:
    """What an old client produces and reads again, or what a leader with old data sends to a follower."""
    if not data:
        return
    mode, records = data[0], _sealed(data[1:])
    if mode & 1:
        sent = upgraded_fetch(records, "t-0")
        headers = validator.check_fetched(sent, "t-0")
        assert headers, "a follower would not take what it converted"
        assert all(header.record_count > 0 for header in headers if header.leader_epoch == 0)
        return
    batch = up_converted(records, _RULES[(mode >> 1) % len(_RULES)])
    if batch is None:
        return
    header = read_header(batch)
    again = down_converted(memoryview(batch), header, mode >> 7, first_offset=0, most_bytes=_MOST).messages
    same = up_converted(memoryview(again), _RULES[0])
    assert same is not None
    assert read_header(same).record_count == header.record_count, "records are lost on the way back"


def _old_seeds() -> Sequence[bytes]:
    seeds = []
    for magic in (0, 1):
        plain = bytearray()
        for offset in range(3):
            write_message(plain, magic, offset, _NOW_MS, b"key", b"value")
        sets = [plain, *(wrapped(plain, magic, codec, 2, _NOW_MS, append_time=False) for codec in (1, 2, 3))]
        seeds += [bytes([mode]) + bytes(messages) for mode in (0, 1, 128) for messages in sets]
    return seeds


TARGETS: Sequence[Target] = (
    Target("old-messages", _old_messages, (KafkaError,), _old_seeds),
    Target("batch", _batch, (KafkaError,), _batch_seeds),
    Target("fetched", _fetched, (KafkaError,), _fetched_seeds),
)
