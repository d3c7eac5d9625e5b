"""Compresses and decompresses the records of a batch: none, gzip, snappy, lz4, zstd.

Libraries are imported when first used. Decompression works in pieces and is bounded: the output never grows
past ``max_bytes``, and no size claimed in the data is trusted. Formats are Kafka's: gzip (RFC 1952), snappy
in Xerial's framing (raw snappy is read too, as some clients send it), LZ4 frames with independent blocks,
zstd frames.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS = {name: codec_id for codec_id, name in enumerate(CODEC_NAMES)} | {"uncompressed": 0}
ZSTD = CODEC_IDS["zstd"]
DEFAULT_MAX_BYTES = 256 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_READ_BYTES = 256 * 1024
_INPUT_BYTES = 64 * 1024
# A block of an LZ4 frame has at most 4 MiB, but Kafka's clients use blocks of 64 KiB.
_LZ4_PIECE_BYTES = 128 * 1024
_ZSTD_INPUT_BYTES = 128
# Snappy's densest element is three bytes that stand for 64, so a larger claim is false.
_SNAPPY_MOST = 22
_INT32 = struct.Struct(">i")

Bytes = bytes | bytearray | memoryview
_of_thread = threading.local()


class CompressionError(ValueError):
    """The data is not valid for the codec, or decompresses to more than allowed."""


class TooLargeInsideError(CompressionError):
    """The data decompresses to more than allowed."""


def compress(codec_id: int, data: Bytes, level: int | None = None) -> bytes:
    """Compresses ``data``; ``level`` is the codec's own scale, None its default. Raises CompressionError."""
    if codec_id == 0:
        return bytes(data)
    try:
        function = _COMPRESSORS[codec_id]
    except KeyError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    return function(data, level)


def decompress(codec_id: int, data: Bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> Bytes:
    """Decompresses ``data`` (codec 0: returns ``data`` itself). Raises CompressionError."""
    if codec_id == 0:
        return data
    pieces = list(decompressed_pieces(codec_id, data, max_bytes))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def decompressed_pieces(codec_id: int, data: Bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[bytes]:
    """Decompresses ``data`` piece by piece, for callers that need not hold all of it.

    Raises CompressionError at any point, so no piece is valid before the last one.
    """
    try:
        function = _DECOMPRESSORS[codec_id]
    except KeyError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    total = 0
    try:
        for piece in function(data, max_bytes):
            total += len(piece)
            if total > max_bytes:
                raise _too_large(max_bytes)
            yield piece
    except CompressionError:
        raise
    # Each library has its own error class, and importing all libraries to name them would slow the start.
    except Exception as error:
        raise CompressionError(f"{CODEC_NAMES[codec_id]} data is corrupt: {error}") from error


def decompress_small(codec_id: int, data: Bytes, max_bytes: int) -> Bytes | None:
    """Decompresses ``data`` in one step if that is fast. None if the result exceeds ``max_bytes``, the data
    is invalid, or it needs a closer look. Reads only the first of several zstd frames.
    """
    if codec_id != ZSTD:
        try:
            return decompress(codec_id, data, max_bytes)
        except CompressionError:
            return None
    import zstandard

    try:
        decompressor = _of_thread.zstd
    except AttributeError:  # creating one costs more than a small batch
        decompressor = _of_thread.zstd = zstandard.ZstdDecompressor()
    try:
        if zstandard.frame_content_size(data) > max_bytes:
            return None  # the library would allocate the claimed size
        found: bytes = decompressor.decompress(data, max_output_size=max_bytes)
    except zstandard.ZstdError:
        return None
    return found


def _too_large(max_bytes: int) -> CompressionError:
    return TooLargeInsideError(f"records decompress to more than {max_bytes} bytes")


def _gzip(data: Bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Bytes, _max_bytes: int) -> Iterator[bytes]:
    rest = memoryview(data)
    while rest:  # a gzip file may have several members
        member = zlib.decompressobj(31)
        while not member.eof:
            if not rest:
                raise CompressionError("gzip data ends early")
            # The library copies unused input, so each piece is small.
            given: Bytes = rest[:_INPUT_BYTES]
            rest = rest[_INPUT_BYTES:]
            while given and not member.eof:
                yield member.decompress(given, _READ_BYTES)
                given = member.unconsumed_tail
        if member.unused_data:
            rest = memoryview(data)[len(data) - len(rest) - len(member.unused_data) :]


def _snappy(data: Bytes, _level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block)) + block
    return bytes(out)


def _unsnappy(data: Bytes, max_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield _unsnappy_block(view, max_bytes)
        return
    position = len(_XERIAL_HEADER)
    while position < len(view):
        (size,) = _INT32.unpack_from(view, position)
        position += 4
        if size < 0 or size > len(view) - position:
            raise CompressionError(f"snappy block claims {size} bytes, {len(view) - position} are left")
        yield _unsnappy_block(view[position : position + size], max_bytes)
        position += size


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    from cramjam import snappy

    claimed = snappy.decompress_raw_len(block)
    if claimed > _SNAPPY_MOST * len(block):
        raise CompressionError(f"snappy block of {len(block)} bytes claims to hold {claimed}")
    if claimed > max_bytes:
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


def _unlz4(data: Bytes, _max_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    # The library allocates a call's maximum output before it decompresses; without a maximum, it allocates
    # what the frame claims. It also copies unused input. So each call has a small maximum and a small input.
    decompressor = lz4.frame.LZ4FrameDecompressor()
    rest = memoryview(data)
    while not decompressor.eof:
        if decompressor.needs_input:
            if not rest:
                raise CompressionError("lz4 frame ends early")
            piece, rest = rest[:_INPUT_BYTES], rest[_INPUT_BYTES:]
        else:
            piece = rest[:0]
        yield decompressor.decompress(piece, max_length=_LZ4_PIECE_BYTES)


def _zstd(data: Bytes, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Bytes, _max_bytes: int) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    rest = memoryview(data)
    while rest:  # there may be several frames
        frame = decompressor.decompressobj()
        while not frame.eof:
            if not rest:
                raise CompressionError("zstd frame ends early")
            # A few bytes may stand for a whole block of 128 KiB, so the input is given in small pieces.
            piece, rest = rest[:_ZSTD_INPUT_BYTES], rest[_ZSTD_INPUT_BYTES:]
            if output := frame.decompress(piece):
                yield output
            if frame.unused_data:
                rest = memoryview(data)[len(data) - len(rest) - len(frame.unused_data) :]


_COMPRESSORS: dict[int, Callable[[Bytes, int | None], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
_DECOMPRESSORS: dict[int, Callable[[Bytes, int], Iterator[bytes]]] = {
    1: _gunzip,
    2: _unsnappy,
    3: _unlz4,
    4: _unzstd,
}
