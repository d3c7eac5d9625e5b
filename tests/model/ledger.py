"""What must never be taken back: the records below a leader's high watermark, and those acknowledged.

Invariants, checked after every step of the model:

- what was once below a leader's high watermark stands for ever at its offset, with its value, in the log of every
  member of the ISR that the store names (so of every broker that can be elected cleanly);
- an acknowledgement with acks=all is given only for such a record;
- every replica's log agrees with it below its own high watermark, which never passes the log's end, nor what a leader
  said, and never goes back while the broker leads;
- in one leader epoch one broker acknowledges;
- what a consumer read stays as it was read.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.broker import ModelBroker


class Ledger:
    """``values`` are the committed records by offset."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.acknowledged: dict[int, bytes] = {}
        self._epochs: dict[int, int] = {}
        self._marks: dict[int, tuple[int, int, int]] = {}

    def reset(self) -> None:
        """The topic was deleted, and its records with it."""
        self.__init__()  # type: ignore[misc]

    def acknowledge(self, offset: int, value: bytes, broker_id: int, leader_epoch: int) -> None:
        first = self._epochs.setdefault(leader_epoch, broker_id)
        assert first == broker_id, (
            f"in leader epoch {leader_epoch} both {first} and {broker_id} acknowledge records"
        )
        before = self.acknowledged.setdefault(offset, value)
        assert before == value, f"offset {offset} was acknowledged as {before!r} and as {value!r}"

    def read(self, offset: int, values: list[bytes]) -> None:
        """A consumer read ``values`` from ``offset`` on."""
        committed = self.values[offset : offset + len(values)]
        assert values == committed, f"a consumer read {values} at {offset}, committed is {committed}"

    def observe(self, brokers: Iterable[ModelBroker]) -> None:
        """Takes note of what leaders have committed, and checks every replica below its high watermark."""
        running = [(broker, broker.log) for broker in brokers if broker.up]
        for broker, log in running:
            partition = broker.partition
            if log is None or partition is None or not partition.is_leader:
                continue
            mark = log.high_watermark
            if mark > len(self.values):
                self.values += broker.values[len(self.values) : mark]
            term = (broker.life, partition.leader_epoch)
            life, epoch, before = self._marks.get(broker.broker_id, (0, -1, 0))
            assert (life, epoch) != term or mark >= before, (
                f"the high watermark of leader {broker.broker_id} went back from {before} to {mark}"
            )
            self._marks[broker.broker_id] = (*term, mark)
        for broker, log in running:
            if log is None:
                continue
            mark = log.high_watermark
            assert mark <= log.log_end_offset, (
                f"{broker.broker_id}: high watermark {mark} is past the end of {log}"
            )
            assert broker.values[:mark] == self.values[:mark], (
                f"broker {broker.broker_id} has {broker.values[:mark]} below its high watermark, "
                f"committed is {self.values[:mark]}"
            )
        for offset, value in self.acknowledged.items():
            found = self.values[offset] if offset < len(self.values) else None
            assert found == value, f"offset {offset} was acknowledged as {value!r}, committed is {found!r}"

    def check_electable(self, members: Iterable[ModelBroker]) -> None:
        """Whoever may lead next holds all that is committed."""
        for broker in members:
            held = broker.values[: len(self.values)]
            assert held == self.values, (
                f"broker {broker.broker_id} is in the ISR and holds {held}, committed is {self.values}"
            )
