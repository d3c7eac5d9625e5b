"""A record's value: its id, and a filler derived from the id, so that a reader detects any changed byte."""

from __future__ import annotations

from zlib import crc32

BAR = b"|"


def value_of(record_id: str, size: int) -> bytes:
    """The value of ``size`` bytes, or the id alone if that is longer."""
    head = record_id.encode()
    room = size - len(head) - len(BAR)
    if room <= 0:
        return head
    return head + BAR + (head * (room // len(head) + 1))[:room]


def id_of(value: bytes) -> str:
    """The id in a value. If the value was changed on its way, returns an id that nobody ever sent."""
    head, bar, _ = value.partition(BAR)
    record_id = head.decode(errors="replace")
    if bar and value != value_of(record_id, len(value)):
        return f"{record_id} changed to {len(value)} bytes with CRC {crc32(value):08x}"
    return record_id
