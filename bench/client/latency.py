"""End-to-end latency at a fixed rate: one record per request, from its scheduled time until a waiting fetch
has it.

The clock is read in nanoseconds, and times count from the schedule, so a stall of the broker is part of all
affected times. One thread does both sides, so the times include no hand-off between threads.
"""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from bench.client.batches import Batch
from bench.client.connection import ReadyConnection
from bench.client.requests import (
    RawClientError,
    batch_offsets,
    check_produced,
    fetch_request,
    produce_request,
    produced_error_at,
    read_fetched,
)
from bench.client.tls import ClientTls

FETCH_BYTES = 1 << 20
GRACE_S = 30.0
US_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The times of all records in microseconds: until the produce was acknowledged, and until the record
    was read.
    """

    acked_us: list[float]
    read_us: list[float]


def end_to_end(
    port: int,
    topic: str,
    batch: Batch,
    per_second: int,
    seconds: float,
    *,
    acks: int = -1,
    begin: int = 0,
    tls: ClientTls | None = None,
) -> EndToEnd:
    """Writes ``batch`` (of one record) to partition 0 of ``topic`` at a fixed rate, and reads it.

    ``begin`` is the topic's end offset: the number of records written before.
    """
    writer, reader = ReadyConnection(port, tls=tls), ReadyConnection(port, FETCH_BYTES + 65536, tls=tls)
    request = produce_request(topic, 0, batch, acks)
    return _OfATopic(
        writer, reader, request, per_second=per_second, seconds=seconds, topic=topic, begin=begin
    ).run()


class EndToEndLoop(ABC):
    """One run: sends ``request`` at a fixed rate, and counts what comes back on both connections, which it closes."""

    def __init__(
        self,
        writer: ReadyConnection,
        reader: ReadyConnection,
        request: bytes,
        *,
        per_second: int,
        seconds: float,
    ) -> None:
        self._request = request
        self._interval = 1 / per_second
        self._count = int(per_second * seconds)
        self._writer = writer
        self._reader = reader
        self._acked: list[float] = []
        self._read: list[float] = []
        self._start = 0.0

    @abstractmethod
    def next_request(self, read: int) -> bytes:
        """What asks for the records that follow ``read`` others."""

    @abstractmethod
    def records_of(self, answer: memoryview) -> list[int]:
        """The numbers of the records in an answer to the reader; the first one of the run has 0."""

    @abstractmethod
    def check(self, answer: memoryview) -> None:
        """Raises RawClientError if an answer to the writer is no acknowledgement."""

    def run(self) -> EndToEnd:
        try:
            self._reader.send(self.next_request(0))
            self._start = time.perf_counter()
            self._loop()
        finally:
            self._writer.close()
            self._reader.close()
        return EndToEnd(self._acked, self._read)

    def _loop(self) -> None:
        sent = 0
        deadline = self._start + self._count * self._interval + GRACE_S
        while len(self._read) < self._count or len(self._acked) < self._count:
            now = time.perf_counter()
            if sent < self._count and self._due(sent) <= now:
                self._writer.send(self._request)
                sent += 1
                continue
            wait = self._due(sent) - now if sent < self._count else deadline - now
            if now > deadline:
                raise RawClientError(f"{len(self._read)} of {self._count} records were read in time")
            ready, _, _ = select.select([self._reader, self._writer], [], [], max(0.0, wait))
            if self._reader in ready:
                self._receive_records()
            if self._writer in ready:
                self._receive_acks()

    def _due(self, number: int) -> float:
        return self._start + number * self._interval

    def _receive_records(self) -> None:
        for answer in self._reader.answers():
            now = time.perf_counter()
            self._read += [(now - self._due(number)) * US_PER_S for number in self.records_of(answer)]
            self._reader.send(self.next_request(len(self._read)))

    def _receive_acks(self) -> None:
        for answer in self._writer.answers():
            self._acked.append((time.perf_counter() - self._due(len(self._acked))) * US_PER_S)
            self.check(answer)


class _OfATopic(EndToEndLoop):
    """A record's offset is its number, counted after the earlier records."""

    def __init__(
        self,
        writer: ReadyConnection,
        reader: ReadyConnection,
        request: bytes,
        *,
        per_second: int,
        seconds: float,
        topic: str,
        begin: int,
    ) -> None:
        super().__init__(writer, reader, request, per_second=per_second, seconds=seconds)
        self._topic = topic
        self._begin = begin
        self._error_at = produced_error_at(topic)

    def next_request(self, read: int) -> bytes:
        return fetch_request(self._topic, 0, self._begin + read, FETCH_BYTES)

    def records_of(self, answer: memoryview) -> list[int]:
        offsets = batch_offsets(answer, read_fetched(answer, self._topic))
        return [offset - self._begin for offset in offsets]

    def check(self, answer: memoryview) -> None:
        check_produced(answer, self._error_at)
