"""Record batches with a correct checksum whose records do not match the header, each with the
expected error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from broker.protocol.errors import Errors
from broker.record.batch import assemble
from broker.record.compression import CODEC_IDS, compress
from broker.record.header import BatchHeader
from broker.record.records import encode_varint
from tests.support.times import NOW_MS

TIMESTAMP: Final = NOW_MS


@dataclass(frozen=True, slots=True)
class Lie:
    """A batch and its errors: ``answer`` is ours, ``kafka`` that of Kafka 3.9.1 for the same bytes (NONE: it
    accepts them).

    ``at_first``: found by the default check, which stops at the first record.
    """

    make: Callable[[], bytes]
    answer: Errors
    kafka: Errors
    at_first: bool = True


def varint(value: int) -> bytes:
    """``value`` in the encoding of records."""
    out = bytearray()
    encode_varint(value, out)
    return bytes(out)


def record(
    number: int = 0,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    offset_delta: int | None = None,
    timestamp_delta: int = 0,
    key_length: int | None = None,
    value_length: int | None = None,
    headers: bytes = b"\0",
    length: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """One record's bytes, with any given lengths instead of the correct ones."""
    body = b"\0" + varint(timestamp_delta) + varint(number if offset_delta is None else offset_delta)
    for field, claimed in ((key, key_length), (value, value_length)):
        body += varint((-1 if field is None else len(field)) if claimed is None else claimed) + (field or b"")
    body += headers + tail
    return varint(len(body) if length is None else length) + body


def batch(
    body: bytes,
    count: int,
    *,
    codec: str = "none",
    packed: bytes | None = None,
    max_timestamp: int = TIMESTAMP,
) -> bytes:
    """A batch that claims ``count`` records; ``packed`` are its bytes unchanged, whatever the codec."""
    header = BatchHeader(
        0, 0, -1, 2, 0, CODEC_IDS[codec], count - 1, TIMESTAMP, max_timestamp, -1, -1, -1, count
    )
    return sealed(header, compress(header.codec_id, body) if packed is None else packed)


def sealed(header: BatchHeader, packed: bytes) -> bytes:
    """The batch of ``header`` followed by these bytes, with the correct checksum."""
    plain = bytearray(assemble(header._replace(attributes=header.attributes & ~7), packed))
    plain[22] |= header.attributes & 7
    return resealed(plain)


def resealed(data: bytearray) -> bytes:
    """``data`` with the correct checksum."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return bytes(data)


def cut(codec: str) -> bytes:
    """The first two thirds of the codec's output for some records."""
    packed = compress(CODEC_IDS[codec], _ten(b"a value of some length" * 20))
    return packed[: len(packed) * 2 // 3]


def _ten(value: bytes = b"value") -> bytes:
    return b"".join(record(number, value=value) for number in range(10))


INVALID: Final = Errors.INVALID_RECORD
UNKNOWN: Final = Errors.UNKNOWN_SERVER_ERROR
NONE: Final = Errors.NONE

PLAIN: Final[Mapping[str, Lie]] = {
    "garbage": Lie(lambda: batch(b"\xff" * 64, 3), INVALID, UNKNOWN),
    "zeroes": Lie(lambda: batch(bytes(64), 3), INVALID, INVALID),
    "a record longer than the batch": Lie(lambda: batch(record(length=500), 1), INVALID, INVALID),
    "a record of negative length": Lie(lambda: batch(record(length=-9), 1), INVALID, INVALID),
    "a key longer than its record": Lie(lambda: batch(record(key_length=400), 1), INVALID, INVALID),
    "a key longer than its record, of two": Lie(
        lambda: batch(record(key_length=400) + record(1), 2), INVALID, INVALID
    ),
    "a value longer than its record": Lie(lambda: batch(record(value_length=400), 1), INVALID, INVALID),
    "a negative number of headers": Lie(lambda: batch(record(headers=varint(-3)), 1), INVALID, INVALID),
    "more headers than bytes": Lie(lambda: batch(record(headers=varint(5000)), 1), INVALID, INVALID),
    "a header without key": Lie(
        lambda: batch(record(headers=varint(1) + varint(-1) + varint(0)), 1), INVALID, INVALID
    ),
    "a record with bytes to spare": Lie(lambda: batch(record(tail=b"more"), 1), INVALID, INVALID),
    "bytes behind the only record": Lie(lambda: batch(record() + b"\0\0\0", 1), INVALID, INVALID),
    "one record said, two there": Lie(lambda: batch(record() + record(1), 1), INVALID, INVALID),
    "three records said, two there": Lie(
        lambda: batch(record() + record(1), 3), INVALID, INVALID, at_first=False
    ),
    "garbage behind the first record": Lie(
        lambda: batch(record() + b"\xff" * 40, 3), INVALID, UNKNOWN, at_first=False
    ),
    "the first offset is not 0": Lie(lambda: batch(record(offset_delta=5) + record(1), 2), INVALID, NONE),
    "an offset comes twice": Lie(
        lambda: batch(record() + record(1, offset_delta=0), 2), INVALID, NONE, at_first=False
    ),
}

PACKED: Final[Mapping[str, Lie]] = {
    **{
        f"{codec} that is none": Lie(
            lambda codec=codec: batch(b"", 3, codec=codec, packed=b"nothing of that kind"), INVALID, UNKNOWN
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    },
    **{
        f"{codec} that ends early": Lie(
            lambda codec=codec: batch(b"", 10, codec=codec, packed=cut(codec)), INVALID, UNKNOWN
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    },
    **{
        f"{codec} of garbage": Lie(lambda codec=codec: batch(b"\xff" * 64, 3, codec=codec), INVALID, INVALID)
        for codec in ("gzip", "snappy", "lz4", "zstd")
    },
    "lz4 that is zstd": Lie(
        lambda: batch(b"", 10, codec="lz4", packed=compress(4, _ten())), INVALID, UNKNOWN
    ),
    "zstd of nothing": Lie(lambda: batch(b"", 1, codec="zstd"), INVALID, INVALID),
    "2^31 - 1 records in zstd": Lie(lambda: batch(record(), (1 << 31) - 1, codec="zstd"), INVALID, INVALID),
    "a thousand records in the room of ten": Lie(lambda: batch(_ten(), 1000, codec="lz4"), INVALID, INVALID),
    "twelve records in lz4, ten there": Lie(
        lambda: batch(_ten(), 12, codec="lz4"), INVALID, INVALID, at_first=False
    ),
    "eight records in lz4, ten there": Lie(
        lambda: batch(_ten(), 8, codec="lz4"), INVALID, INVALID, at_first=False
    ),
    "the first offset in zstd is not 0": Lie(
        lambda: batch(record(offset_delta=5) + record(1), 2, codec="zstd"), INVALID, UNKNOWN
    ),
}

LIES: Final[Mapping[str, Lie]] = {**PLAIN, **PACKED}
