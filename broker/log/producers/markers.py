"""Transaction markers: the control records that end a producer's transaction on a partition (KIP-98).

The key is int16 version 0 and int16 type (0 abort, 1 commit); the value is int16 version 0 and int32 epoch of
the transaction coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch, iter_records
from broker.record.header import BatchHeader

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT, _COMMIT = 0, 1


class TransactionMarker(NamedTuple):
    """The content of a transaction marker: how the transaction ended; Kafka's EndTransactionMarker."""

    committed: bool
    coordinator_epoch: int


def read_marker(view: memoryview, position: int, header: BatchHeader) -> TransactionMarker | None:
    """The transaction marker in a control batch; None for other control records, and for a batch whose marker
    was compacted away.

    Raises KafkaError(CORRUPT_MESSAGE).
    """
    for record in iter_records(view, header, position):
        if record.key is not None and record.value is not None:
            try:
                _, kind = _KEY.unpack_from(record.key)
                _, coordinator_epoch = _VALUE.unpack_from(record.value)
            except struct.error as error:
                raise KafkaError(
                    Errors.CORRUPT_MESSAGE, f"control batch at offset {header.base_offset} is cut short"
                ) from error
            if kind in (_ABORT, _COMMIT):
                return TransactionMarker(kind == _COMMIT, coordinator_epoch)
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
