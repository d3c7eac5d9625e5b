"""The tagged fields of KIP-951: who leads a partition, and at which address the leaders are.

The layouts are from Kafka 3.9's ProduceResponse and FetchResponse: LeaderIdAndEpoch of a partition, NodeEndpoints
of the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from broker.protocol.primitives import pack_compact_nullable_string, write_uvarint

NO_TAGS: Final = b"\0"
_LEADER: Final = Struct(">BBiiB")
_LEADER_BYTES: Final = 9
_INT32: Final = Struct(">i")


class NodeEndpoint(NamedTuple):
    """A broker's address on the listener of the connection that asks; Kafka's NodeEndpoint. ``rack``: None if it
    has none.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


def leader_field(tag: int, leader_id: int, leader_epoch: int) -> bytes:
    """LeaderIdAndEpoch as the field ``tag``, without the number of fields before it."""
    return _LEADER.pack(tag, _LEADER_BYTES, leader_id, leader_epoch, 0)


def endpoints_section(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of a response that has no others: its NodeEndpoints (tag 0)."""
    parts = [write_uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (
            _INT32.pack(node_id),
            pack_compact_nullable_string(host),
            _INT32.pack(port),
            pack_compact_nullable_string(rack),
            NO_TAGS,
        )
    field = b"".join(parts)
    return b"".join((b"\1\0", write_uvarint(len(field)), field))
