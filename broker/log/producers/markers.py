"""Transaction markers: the control records that end a producer's transaction on a partition (KIP-98).

The key is int16 version 0 and int16 type (0 abort, 1 commit); the value is int16 version 0 and int32 epoch of
the transaction coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch, iter_records
from broker.record.header import CODEC_MASK, HEADER_BYTES, BatchHeader

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1
# The one record of each marker that Kafka or Landline has written. Three of its fields vary: key type, the value's
# version and the epoch.
_RECORD: Final = struct.Struct(">5B2hBhiB")
_MARKER_BYTES: Final = HEADER_BYTES + _RECORD.size
# Length, attributes, both deltas, the key's length and its version.
_BEFORE_TYPE: Final = (32, 0, 0, 0, 8, _VERSION)
_VALUE_LENGTH: Final = 12


class TransactionMarker(NamedTuple):
    """The content of a transaction marker: how the transaction ended; Kafka's EndTransactionMarker.
    ``coordinator_epoch`` is NO_EPOCH if the marker does not say it.
    """

    committed: bool
    coordinator_epoch: int


class CutMarkerError(KafkaError):
    """A transaction marker has fewer bytes than its schema; CORRUPT_MESSAGE for a peer.

    ``marker``: what it says all the same, if its key is whole; None if not.
    """

    def __init__(self, header: BatchHeader, marker: TransactionMarker | None) -> None:
        super().__init__(Errors.CORRUPT_MESSAGE, f"control batch at offset {header.base_offset} is cut short")
        self.marker = marker


def read_marker(view: memoryview, position: int, header: BatchHeader) -> TransactionMarker | None:
    """The transaction marker in a control batch; None for other control records, and for a batch whose marker
    was compacted away.

    Raises CutMarkerError, KafkaError(CORRUPT_MESSAGE).
    """
    if header.size_bytes == _MARKER_BYTES and not header.attributes & CODEC_MASK and header.record_count == 1:
        *before, kind, value_length, _, coordinator_epoch, headers = _RECORD.unpack_from(
            view, position + HEADER_BYTES
        )
        if tuple(before) == _BEFORE_TYPE and value_length == _VALUE_LENGTH and not headers and 0 <= kind <= 1:
            return TransactionMarker(kind == _COMMIT, coordinator_epoch)
    for record in iter_records(view, header, position):
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size:
            raise CutMarkerError(header, None)
        _, kind = _KEY.unpack_from(key)
        if kind in (_ABORT, _COMMIT):
            committed = kind == _COMMIT
            if len(value) < _VALUE.size:
                raise CutMarkerError(header, TransactionMarker(committed, NO_EPOCH))
            _, coordinator_epoch = _VALUE.unpack_from(value)
            return TransactionMarker(committed, coordinator_epoch)
    return None


def up_to_cut_marker(view: memoryview, headers: Sequence[BatchHeader]) -> Sequence[BatchHeader]:
    """Those of the batches in ``view`` that come before the first marker that is cut short: mostly all.

    Raises KafkaError(CORRUPT_MESSAGE) if that is the first batch.
    """
    position = 0
    for number, header in enumerate(headers):
        if header.is_control:
            try:
                read_marker(view, position, header)
            except KafkaError:
                if number:
                    return headers[:number]
                raise
        position += header.size_bytes
    return headers


def build_marker(producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int) -> memoryview:
    """A writable control batch with the marker, as a coordinator has it appended."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    record = Record(key, _VALUE.pack(_VERSION, marker.coordinator_epoch), timestamp=now_ms)
    batch = build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    return memoryview(bytearray(batch))
