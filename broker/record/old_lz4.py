"""The LZ4 frames inside messages of magic 0.

Kafka's first LZ4 clients computed the frame header's checksum over too many bytes, and clients of magic 0 still
expect that value (KIP-57). Readers of Kafka 0.10 and later ignore the checksum in messages of magic 0.
"""

from __future__ import annotations

from broker.record.compression import Bytes, CompressionError

_FLAGS_AT = 4  # after the frame's magic number
_CONTENT_SIZE_FLAG, _DICTIONARY_FLAG = 0x08, 0x01
_MASK = 0xFFFFFFFF
# The constants of XXH32, the frame format's checksum.
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_LEAST_FRAME_BYTES = 7
_XXH32_SHORT_BYTES = 16


def with_right_checksum(frame: Bytes) -> bytes:
    """A copy of ``frame`` whose header has the checksum of the LZ4 frame format. Raises CompressionError."""
    return _with_checksum(frame, _FLAGS_AT)


def with_old_checksum(frame: Bytes) -> bytes:
    """A copy of ``frame`` whose header has the checksum that clients of magic 0 expect: the frame's magic number
    is part of what it covers. Raises CompressionError.
    """
    return _with_checksum(frame, 0)


def _with_checksum(frame: Bytes, begin: int) -> bytes:
    if len(frame) < _LEAST_FRAME_BYTES:
        raise CompressionError("lz4 frame ends early")
    flags = frame[_FLAGS_AT]
    at = _FLAGS_AT + 2 + (8 if flags & _CONTENT_SIZE_FLAG else 0) + (4 if flags & _DICTIONARY_FLAG else 0)
    if at >= len(frame) or at - begin >= _XXH32_SHORT_BYTES:
        raise CompressionError("lz4 frame has an impossible header")
    out = bytearray(frame)
    out[at] = xxh32_of_few(bytes(frame[begin:at])) >> 8 & 0xFF
    return bytes(out)


def xxh32_of_few(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes."""
    value = _PRIME_5 + len(data) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * _PRIME_3 & _MASK
        value = _rotated(value, 17) * _PRIME_4 & _MASK
    for byte in data[whole:]:
        value = value + byte * _PRIME_5 & _MASK
        value = _rotated(value, 11) * _PRIME_1 & _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
