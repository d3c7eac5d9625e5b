"""Maps a group or a transactional id to its partition of the internal topic, by Kafka's rule. In a mixed cluster
all brokers must agree on it.
"""

from __future__ import annotations

from functools import lru_cache

_MIN_INT = -(1 << 31)
# Clients choose the names. Longer ones are not kept.
_LONGEST_KEPT = 249


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: signed 32 bits over UTF-16 code units."""
    return _kept_hash(text) if len(text) <= _LONGEST_KEPT else _hash(text)


def _hash(text: str) -> int:
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


_kept_hash = lru_cache(maxsize=4096)(_hash)


def partition_for(name: str, partitions: int) -> int:
    hashed = java_hash(name)
    return 0 if hashed == _MIN_INT else abs(hashed) % partitions
