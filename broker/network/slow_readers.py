"""Peers that are slow to read responses from deleted segments: the disk space is not freed until they have
read them.
"""

from __future__ import annotations

from broker.network.connection import Connection
from broker.utils.refusal_log import log_refusal

# The default limit for reading such a response, counted from its discovery.
DELETED_FILE_MS = 60_000
# Time until the next check, per file: a check takes a microsecond, so checks take a ten-thousandth of
# the time.
_LOOK_MS_A_FILE = 10


def holds_deleted_file(connection: Connection, now_ms: int, most_ms: int) -> bool:
    """Whether the peer has taken more than ``most_ms`` to read a response from a deleted file; logged if so.

    Partial progress does not count: otherwise a byte per minute would be enough.
    """
    if not connection.out and not connection.in_flight:
        connection.pinned_since_ms = 0
        return False
    if now_ms < connection.next_look_ms:
        return False
    regions = connection.unsent_regions()
    connection.next_look_ms = now_ms + _LOOK_MS_A_FILE * len(regions)
    if not any(region.is_deleted for region in regions):
        connection.pinned_since_ms = 0
    elif not connection.pinned_since_ms:
        connection.pinned_since_ms = now_ms
    if not 0 < connection.pinned_since_ms <= now_ms - most_ms:
        return False
    log_refusal(
        "slow_reader_closed",
        connection.info.client_address,
        f"its answer is from a segment that was deleted {now_ms - connection.pinned_since_ms} ms ago or more, whose "
        "space on the disk is not free until it is sent",
        setting="landline.deleted.segment.read.max.ms",
    )
    return True
