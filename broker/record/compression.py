"""Compressing and decompressing the records of a batch: none, gzip, snappy, lz4, zstd.

The libraries are imported when first used. Decompression is bounded: the output never grows past
``max_bytes``, whatever the peer's bytes claim. Formats are Kafka's: gzip (RFC 1952), snappy in Xerial's
framing (raw snappy is read too, as some clients send it), LZ4 frames with independent blocks, zstd frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS = {name: codec_id for codec_id, name in enumerate(CODEC_NAMES)} | {"uncompressed": 0}
DEFAULT_MAX_BYTES = 256 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_READ_BYTES = 256 * 1024
_ZSTD_INPUT_BYTES = 256
_INT32 = struct.Struct(">i")

Bytes = bytes | bytearray | memoryview


class CompressionError(ValueError):
    """The bytes are not what the codec says, or decompress to more than allowed."""


def compress(codec_id: int, data: Bytes, level: int | None = None) -> bytes:
    """``data`` compressed; ``level`` is the codec's own scale, None its default. Raises CompressionError."""
    if codec_id == 0:
        return bytes(data)
    try:
        function = _COMPRESSORS[codec_id]
    except KeyError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    return function(data, level)


def decompress(codec_id: int, data: Bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> Bytes:
    """``data`` decompressed (codec 0: ``data`` itself). Raises CompressionError."""
    if codec_id == 0:
        return data
    try:
        function = _DECOMPRESSORS[codec_id]
    except KeyError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    try:
        return function(data, max_bytes)
    except CompressionError:
        raise
    # Each library has an error class of its own, and importing all to name them would cost start-up time.
    except Exception as error:
        raise CompressionError(f"{CODEC_NAMES[codec_id]} data is corrupt: {error}") from error


def _too_large(max_bytes: int) -> CompressionError:
    return CompressionError(f"records decompress to more than {max_bytes} bytes")


def _gzip(data: Bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Bytes, max_bytes: int) -> bytes:
    out = bytearray()
    rest: Bytes = data
    while rest:  # a gzip file may have several members
        member = zlib.decompressobj(31)
        while not member.eof:
            chunk = member.decompress(rest, _READ_BYTES)
            out += chunk
            if len(out) > max_bytes:
                raise _too_large(max_bytes)
            rest = member.unconsumed_tail
            if not chunk and not rest and not member.eof:
                raise CompressionError("gzip data ends early")
        rest = member.unused_data
    return bytes(out)


def _snappy(data: Bytes, _level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block)) + block
    return bytes(out)


def _unsnappy(data: Bytes, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        (size,) = _INT32.unpack_from(view, position)
        position += 4
        if size < 0 or size > len(view) - position:
            raise CompressionError(f"snappy block claims {size} bytes, {len(view) - position} are left")
        out += _unsnappy_block(view[position : position + size], max_bytes - len(out))
        position += size
    return bytes(out)


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    from cramjam import snappy

    if snappy.decompress_raw_len(block) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(snappy.decompress_raw(block))


def _lz4(data: Bytes, level: int | None) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _unlz4(data: Bytes, max_bytes: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    out: bytes = decompressor.decompress(data, max_length=max_bytes + 1)
    if len(out) > max_bytes:
        raise _too_large(max_bytes)
    if not decompressor.eof:
        raise CompressionError("lz4 frame ends early")
    return out


def _zstd(data: Bytes, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Bytes, max_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    out = bytearray()
    rest = memoryview(data)
    while rest:  # there may be several frames
        frame = decompressor.decompressobj()
        while not frame.eof:
            if not rest:
                raise CompressionError("zstd frame ends early")
            # A few bytes may stand for a whole block of 128 KiB, so the input is given in small pieces.
            piece, rest = rest[:_ZSTD_INPUT_BYTES], rest[_ZSTD_INPUT_BYTES:]
            out += frame.decompress(piece)
            if len(out) > max_bytes:
                raise _too_large(max_bytes)
            if frame.unused_data:
                rest = memoryview(data)[len(data) - len(rest) - len(frame.unused_data) :]
    return bytes(out)


_COMPRESSORS: dict[int, Callable[[Bytes, int | None], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
_DECOMPRESSORS: dict[int, Callable[[Bytes, int], bytes]] = {
    1: _gunzip,
    2: _unsnappy,
    3: _unlz4,
    4: _unzstd,
}
