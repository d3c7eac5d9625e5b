"""What classic consumers tell each other in JoinGroup and SyncGroup: Kafka's ConsumerProtocol, 0 to 3. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.coordinator.common.records import MalformedRecord, element_count, told_as_malformed
from broker.protocol.primitives import INT16, INT32, Reader, pack_string

_NO_USER_DATA: Final = INT32.pack(-1)
_WITH_OWNED: Final = 1
_WITH_GENERATION: Final = 2
_WITH_RACK: Final = 3

Partitions = Mapping[str, frozenset[int]]


class Subscription(NamedTuple):
    """A ConsumerProtocolSubscription. Consumers of the eager protocol own nothing: they revoke all before they join."""

    version: int
    topics: frozenset[str]
    owned: Partitions
    rack_id: str | None


@told_as_malformed
def decode_subscription(data: bytes) -> Subscription:
    """Raises :class:`MalformedRecord`. What a later version has more is left out."""
    reader = Reader(memoryview(data))
    version = _version(reader)
    topics = frozenset([reader.string() for _ in range(element_count(reader))])
    reader.nullable_bytes()
    owned = _partitions(reader) if version >= _WITH_OWNED else {}
    if version >= _WITH_GENERATION:
        reader.int32()
    return Subscription(version, topics, owned, reader.nullable_string() if version >= _WITH_RACK else None)


@told_as_malformed
def decode_assignment(data: bytes) -> Partitions:
    """The partitions of a ConsumerProtocolAssignment. No bytes at all are no partitions, as between generations.
    Raises :class:`MalformedRecord`.
    """
    if not data:
        return {}
    reader = Reader(memoryview(data))
    _version(reader)
    return _partitions(reader)


def encode_assignment(version: int, partitions: Partitions) -> bytes:
    """A ConsumerProtocolAssignment without user data. All versions look the same so far."""
    topics = [
        pack_string(name) + _array(INT32.pack(number) for number in sorted(numbers))
        for name, numbers in sorted(partitions.items())
    ]
    return INT16.pack(version) + _array(topics) + _NO_USER_DATA


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise MalformedRecord(f"unknown version {version}")
    return version


def _partitions(reader: Reader) -> Partitions:
    found: dict[str, frozenset[int]] = {}
    for _ in range(element_count(reader)):
        name = reader.string()
        numbers = frozenset([reader.int32() for _ in range(element_count(reader))])
        found[name] = found.get(name, frozenset()) | numbers
    return found


def _array(elements: Iterable[bytes]) -> bytes:
    every = list(elements)
    return INT32.pack(len(every)) + b"".join(every)
