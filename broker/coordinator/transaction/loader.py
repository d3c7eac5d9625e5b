"""Reads a partition of __transaction_state: later records win, tombstones remove. It reads Kafka 3.9's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.common.replay import BatchReplay, ReadableLog, read_all
from broker.coordinator.transaction.metadata import TransactionMetadata
from broker.coordinator.transaction.records import TransactionRecord, decode_key, decode_value
from broker.record.batch import BatchHeader, Record

_log = structlog.get_logger(__name__)


class TransactionReplay(BatchReplay):
    """The transactions that a partition's records add up to. One thread feeds it."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: dict[str, TransactionRecord] = {}

    def feed_record(self, record: Record, _header: BatchHeader) -> None:
        if record.key is None:
            raise MalformedRecord("a record without a key")
        transactional_id = decode_key(record.key)
        if record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_value(record.value)


def replay(
    log: ReadableLog, partition: int, is_wanted: Callable[[], bool], load_bytes: int
) -> Iterator[TransactionMetadata] | None:
    """The transactions in the log. None if the load is no longer wanted. Raises LoadError."""
    result = TransactionReplay()
    if not read_all(log, result, is_wanted, load_bytes):
        return None
    if result.first_skipped is not None:
        _log.warning(
            "transaction_records_skipped",
            partition=partition,
            skipped=result.skipped,
            first_offset=result.first_skipped[0],
            reason=result.first_skipped[1],
            action="these changes of transactions are unknown here; kafka-dump-log shows the records",
        )
    return _taken_from(result.transactions)


def _taken_from(records: dict[str, TransactionRecord]) -> Iterator[TransactionMetadata]:
    """Takes out one record after the other: to free very many at once would hold the interpreter for long."""
    while records:
        yield TransactionMetadata.of(*records.popitem())
