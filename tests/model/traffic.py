"""What clients and followers do in the model: appends, reads, and fetches whose ways a test decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch, read_records
from tests.model.broker import TP, FetchInFlight, ModelBroker
from tests.model.ledger import Ledger
from tests.model.wires import Outgoing
from tests.support.clocks import ManualClock

BROKERS = (1, 2, 3)


@dataclass(eq=False)
class Messages:
    """What is on its way. A message stays until it is delivered for the last time or lost."""

    fetches: list[FetchInFlight] = field(default_factory=list)
    fetched: list[tuple[FetchInFlight, bytes]] = field(default_factory=list)
    alters: list[tuple[int, int, list[Any], Any]] = field(default_factory=list)
    altered: list[tuple[int, int, list[Any], Any]] = field(default_factory=list)
    late: deque[Outgoing] = field(default_factory=lambda: deque(maxlen=8))


class Traffic:
    """The brokers, what is on its way between them, and the ledger of what is committed."""

    def __init__(
        self, directory: Path, present_topic_id: Callable[[str], UUID | None], *, unclean: bool
    ) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.messages = Messages()
        self.unclean = unclean
        self.sent = 0
        self.brokers = {
            b: ModelBroker(b, directory / str(b), self.clock, self._broker, present_topic_id) for b in BROKERS
        }

    def _broker(self, broker_id: int) -> ModelBroker:
        return self.brokers[broker_id]

    # -- clients

    def produce(self, broker: ModelBroker, acks: int, count: int = 1) -> None:
        """A producer's request, to whomever it takes for the leader; acknowledged now or later, or never."""
        ledger = self.ledger
        first = self.sent
        self.sent += count
        values = [b"%d" % number for number in range(first, self.sent)]
        for value in values:
            batch = memoryview(bytearray(build_batch([Record(None, value, (), 1000)])))
            partition = broker.partition
            epoch = -1 if partition is None else partition.state.leader_epoch
            counts = acks == -1 and partition is not None and self.ledger.concerns(partition.topic_id)

            def answered(
                responses: Any, value: bytes = value, epoch: int = epoch, counts: bool = counts
            ) -> None:
                response = responses[TP]
                if response.error is Errors.NONE and counts and ledger is self.ledger:
                    self.ledger.observe(self.brokers.values())
                    self.ledger.acknowledge(response.base_offset, value, broker.broker_id, epoch)

            broker.replicas.append_records(
                timeout_ms=1000, required_acks=acks, entries={TP: batch}, callback=answered
            )
            ledger.note(broker)

    def consume(self, broker: ModelBroker, offset: int) -> None:
        view = broker.read_as_consumer(offset)
        partition = broker.partition
        if view and partition is not None and self.ledger.concerns(partition.topic_id):
            self.ledger.observe(self.brokers.values())
            records = [r for r in read_records(view) if r.offset >= offset]
            self.ledger.read(offset, [r.value or b"" for r in records])

    # -- following

    def send_fetch(self, broker: ModelBroker) -> FetchInFlight | None:
        """The next request of a follower; what it asked before, it no longer waits for."""
        fetcher = broker.fetcher
        body = None if fetcher is None else fetcher.ask(self.clock)
        if fetcher is None or body is None:
            return None
        leader = self.brokers[fetcher.leader]
        flight = FetchInFlight(broker.broker_id, broker.life, leader.broker_id, leader.life, fetcher, body)
        fetcher.waiting_for = flight
        self.messages.fetches.append(flight)
        return flight

    def serve_fetch(self, flight: FetchInFlight) -> bytes | None:
        leader = self.brokers[flight.leader]
        if not leader.up or leader.life != flight.leader_life:
            return None
        frame = leader.serve_fetch(flight.body)
        self.ledger.note(leader)
        return frame

    def take_fetched(self, flight: FetchInFlight, frame: bytes) -> None:
        fetcher = flight.fetcher
        if fetcher.waiting_for is not flight or fetcher.is_stopped:
            return
        fetcher.waiting_for = None
        if self.brokers[flight.follower].life != flight.follower_life:
            return
        fetcher.receive(frame)

    def replicate(self, broker: ModelBroker) -> None:
        """One undisturbed fetch."""
        flight = self.send_fetch(broker)
        if flight is not None:
            self.messages.fetches.remove(flight)
            frame = self.serve_fetch(flight)
            if frame is not None:
                self.take_fetched(flight, frame)

    def fetch_without_hearing(self, broker: ModelBroker) -> None:
        """The leader takes note of the fetch, its answer is lost."""
        flight = self.send_fetch(broker)
        if flight is not None:
            self.messages.fetches.remove(flight)
            self.serve_fetch(flight)

    def commit(self) -> None:
        """All followers fetch, and say by another fetch that they have."""
        for _ in range(2):
            for broker in self.brokers.values():
                self.replicate(broker)
