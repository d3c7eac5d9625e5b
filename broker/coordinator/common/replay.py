"""Reads a coordinator's partition of its internal topic from the start to the end, record by record.

What the records mean is the matter of each coordinator's own replay.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from broker.protocol.errors import KafkaError
from broker.record.batch import BatchHeader, Record, crc_is_valid, iter_batches, iter_records

LOAD_BYTES: Final = 5 * 1024 * 1024


class ReadableLog(Protocol):
    """The part of :class:`broker.log.log.Log` that is used here."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def read_bytes(self, offset: int, max_bytes: int) -> memoryview: ...


class LoadError(Exception):
    """The log cannot be read to its end."""


class BatchReplay:
    """The state that a partition's records add up to. One thread feeds it. Batches and records that cannot be
    read are skipped and counted.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self.first_skipped: tuple[int, str] | None = None

    @abstractmethod
    def feed_record(self, record: Record, header: BatchHeader) -> None:
        """Takes one record. Raises ValueError if it cannot be read."""

    def feed_marker(self, header: BatchHeader, records: list[Record]) -> None:
        """Takes a control batch, which by default means nothing."""

    def feed(self, view: memoryview) -> int | None:
        """Takes whole batches. Returns the offset after the last batch, or None if there was none."""
        next_offset = None
        position = 0
        for header in iter_batches(view):
            self._feed_batch(view, header, position)
            next_offset = header.next_offset
            position += header.size_bytes
        return next_offset

    def _feed_batch(self, view: memoryview, header: BatchHeader, position: int) -> None:
        if not crc_is_valid(view, header, position):
            self.skip(header.base_offset, "the batch fails its checksum")
            return
        try:
            records = iter_records(view, header, position)
        except KafkaError as error:
            self.skip(header.base_offset, str(error))
            return
        if header.is_control:
            self.feed_marker(header, records)
            return
        for record in records:
            try:
                self.feed_record(record, header)
            except ValueError as error:
                self.skip(record.offset, str(error))

    def skip(self, offset: int, reason: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or (offset, reason)


def read_all(
    log: ReadableLog, replay: BatchReplay, is_wanted: Callable[[], bool], load_bytes: int = LOAD_BYTES
) -> bool:
    """Feeds the log up to its current end, in reads of ``load_bytes``. False if the load is no longer wanted.
    Raises :class:`LoadError`.
    """
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        if not is_wanted():
            return False
        next_offset = replay.feed(log.read_bytes(offset, load_bytes))
        if next_offset is None:
            raise LoadError(f"nothing to read at offset {offset} of {end}")
        if next_offset <= offset:
            raise LoadError(f"the batch at offset {offset} claims to end before {next_offset}")
        offset = next_offset
    return True
