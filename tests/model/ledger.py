"""What must never be taken back: the records below a leader's high watermark, and those acknowledged.

Invariants, checked after every step of the model:

- what was once below a leader's high watermark stands for ever at its offset, with its value, in the log of every
  member of the ISR that the store names (so of every broker that can be elected cleanly);
- an acknowledgement with acks=all is given only for such a record;
- every replica's log agrees with it below its own high watermark, which never passes the log's end, nor what a leader
  said, and never goes back while the broker leads;
- in one leader epoch one broker acknowledges;
- what a consumer read stays as it was read.

All of it is about one topic. A replica of a topic of the same name that was deleted is another matter, though
it may still be there, led and written.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tests.model.broker import ModelBroker


class Ledger:
    """``values`` are the committed records by offset; while there is no topic, nothing is noted or promised."""

    def __init__(self, topic_id: UUID | None = None) -> None:
        self.topic_id = topic_id
        self.values: list[bytes] = []
        self.acknowledged: dict[int, bytes] = {}
        self._epochs: dict[int, int] = {}
        self._marks: dict[int, tuple[int, int, int]] = {}

    def concerns(self, topic_id: UUID | None) -> bool:
        return self.topic_id is not None and topic_id == self.topic_id

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

    def note(self, broker: ModelBroker) -> None:
        """What a broker that leads has committed; to be called before it may have ceased to lead."""
        partition, log = broker.partition, broker.log
        if log is None or partition is None or not partition.is_leader or not self.concerns(log.topic_id):
            return
        mark = log.high_watermark
        if mark > len(self.values):
            self.values += broker.values[len(self.values) : mark]
        term = (broker.life, partition.state.leader_epoch)
        life, epoch, before = self._marks.get(broker.broker_id, (0, -1, 0))
        assert (life, epoch) != term or mark >= before, (
            f"the high watermark of leader {broker.broker_id} went back from {before} to {mark}"
        )
        self._marks[broker.broker_id] = (*term, mark)

    def observe(self, brokers: Iterable[ModelBroker]) -> None:
        """Takes note of what leaders have committed, and checks every replica below its high watermark."""
        running = [broker for broker in brokers if broker.up]
        for broker in running:
            self.note(broker)
        for broker in running:
            log = broker.log
            if log is None or not self.concerns(log.topic_id):
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
