"""The latest offset of each key in the dirty part of a log, in bounded memory.

Keys are stored as 16-byte digests, as in Kafka. Two keys with one digest would lose a record; the probability
of 2^-128 is negligible.
"""

from __future__ import annotations

from hashlib import blake2b

from broker.protocol.offsets import UNKNOWN_OFFSET

_BYTES_PER_KEY = 180  # measured: digest, offset and their share of the dict
_LOAD_FACTOR = 0.9


class OffsetMap:
    """Maps a key to its latest offset; Kafka's SkimpyOffsetMap. ``max_bytes`` is
    ``log.cleaner.dedupe.buffer.size``, counted in Python's memory use.
    """

    def __init__(self, max_bytes: int) -> None:
        self._capacity = max(int(max_bytes * _LOAD_FACTOR) // _BYTES_PER_KEY, 1)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, keys: int) -> bool:
        """Whether ``keys`` more fit; always True when empty, because one batch must fit."""
        return not self._offsets or len(self._offsets) + keys <= self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Records ``key`` at ``offset``, which is higher than all before."""
        self._offsets[_digest(key)] = offset

    def latest(self, key: bytes) -> int:
        """The highest offset recorded for ``key``, -1 if none."""
        return self._offsets.get(_digest(key), UNKNOWN_OFFSET)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
