"""A log against a list: whatever is appended, cut, rolled, read and reopened, the two must agree."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.config.log_config import LogConfig
from broker.record.batch import Record, build_batch, iter_batches, read_records
from tests.support.clocks import ManualClock
from tests.support.logs import TP, batch, contents, open_log

PRODUCER = 7


class LogModel(RuleBasedStateMachine):
    """``self.batches``: what the log should hold, each batch a list of (offset, value, timestamp, epoch)."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.clock = ManualClock()
        self.config = LogConfig(segment_bytes=600, index_interval_bytes=80, segment_index_bytes=24 * 1024)
        self.batches: list[list[tuple[int, bytes, int, int]]] = []
        self.start = self.end = self.epoch = 0
        self.durable = 0
        self.sequence = 0
        self.last_sent: tuple[bytes, int, int] | None = None

    @initialize()
    def open(self) -> None:
        self.log = open_log(self.directory, self.config, clock=self.clock)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def _expect(self, values: list[bytes], timestamp: int, at: int | None = None) -> None:
        first = self.end if at is None else at
        self.batches.append([(first + n, value, timestamp, self.epoch) for n, value in enumerate(values)])
        self.end = first + len(values)

    @rule(values=st.lists(st.binary(max_size=60), min_size=1, max_size=4), step=st.integers(-5, 20))
    def append(self, values, step) -> None:
        self.clock.now_ms += step
        info = self.log.append_as_leader(batch(*values, timestamp=self.clock.now_ms), self.epoch)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + len(values) - 1)
        self._expect(values, self.clock.now_ms)

    @rule(value=st.binary(max_size=20))
    def append_idempotently(self, value) -> None:
        sent = bytes(batch(value, producer_id=PRODUCER, producer_epoch=0, base_sequence=self.sequence))
        info = self.log.append_as_leader(memoryview(bytearray(sent)), self.epoch)
        assert not info.duplicate
        assert info.first_offset == self.end
        self.last_sent = (sent, info.first_offset, self.sequence)
        self._expect([value], 1000)
        self.sequence += 1

    @precondition(lambda self: self.last_sent is not None and self.last_sent[1] < self.end)
    @rule()
    def retry_the_last_idempotent_batch(self) -> None:
        sent, offset, _ = self.last_sent
        info = self.log.append_as_leader(memoryview(bytearray(sent)), self.epoch)
        assert (info.duplicate, info.first_offset) == (True, offset)

    @rule(
        gap=st.integers(0, 3),
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
        cut=st.integers(0, 30),
    )
    def append_fetched_batches(self, gap, counts, cut) -> None:
        data = bytearray()
        offset = self.end + gap
        for count in counts:
            values = [b"f%d" % n for n in range(count)]
            records = [Record(None, value, (), 2000) for value in values]
            data += build_batch(records, base_offset=offset, leader_epoch=self.epoch)
            self._expect(values, 2000, at=offset)
            offset += count
        data += data[:cut]  # an incomplete last batch
        self.log.append_as_follower(memoryview(data))

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = self.end

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        self._cut(offset)

    def _cut(self, offset: int) -> None:
        self.start = min(self.start, offset)
        kept = [records for records in self.batches if records[-1][0] < offset]
        removed = self.batches[len(kept) :]
        self.batches = kept
        if removed or offset < self.end:
            self.end = self._end_of_data()
        self.durable = min(self.durable, self.end)
        self._forget_producer()

    def _end_of_data(self) -> int:
        """After a gap that retention or truncation left empty, a segment's base says where the log ends."""
        last = self.batches[-1][-1][0] + 1 if self.batches else 0
        return max(last, self.log.segments[-1].base_offset, self.start)

    def _forget_producer(self) -> None:
        """After data went, the producer's state is what the rest says: start with a new producer epoch's rules."""
        entry = self.log.producer_state.producers.get(PRODUCER)
        self.sequence = 0 if entry is None else entry.last_sequence + 1
        self.last_sent = None

    @rule(offset_step=st.integers(0, 5))
    def start_anew(self, offset_step) -> None:
        if offset_step:
            return  # seldom
        self.log.truncate_fully_and_start_at(self.end + 10)
        self.batches = []
        self.start = self.end = self.end + 10
        self.durable = 0
        self._forget_producer()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.high_watermark = self.end
        self.log.increment_log_start_offset(offset)
        self.start = max(self.start, offset)
        self.log.delete_old_segments()

    @rule()
    def reopen_cleanly(self) -> None:
        self.log.flush()
        self.log.close()
        self._reopen(clean=True)
        self.last_sent = None if self.last_sent is None else self.last_sent

    @rule()
    def reopen_after_a_kill(self) -> None:
        self._reopen(clean=False)

    def _reopen(self, *, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        self.log = open_log(
            self.directory,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            clock=self.clock,
        )

    @precondition(lambda self: self.batches and self.batches[-1][-1][0] >= self.durable)
    @rule(data=st.data())
    def reopen_with_a_torn_tail(self, data) -> None:
        """The machine lost power: the end of what was not synced is cut off or garbage."""
        segment = self.log.segments[-1]
        if segment.size == 0:
            return
        last_position = max(position for position, header in segment.headers_from(0))
        path = segment.path(".log")
        position = data.draw(st.integers(last_position, segment.size - 1))
        if data.draw(st.booleans()):
            with path.open("r+b") as file:
                file.truncate(position)
        else:
            content = bytearray(path.read_bytes())
            content[position] ^= 0x55
            # Offset and epoch stand outside the checksum: there a flipped bit cannot be seen.
            if position - last_position < 17:
                return
            path.write_bytes(content)
        self.batches.pop()
        self._reopen(clean=False)
        self.end = self._end_of_data()
        if self.start >= self.end:
            self.batches = [records for records in self.batches if records[-1][0] >= self.start]
        self._forget_producer()

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), max_bytes=st.integers(1, 2000))
    def read_anywhere(self, data, max_bytes) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        bound = data.draw(st.sampled_from([self.end, *(records[0][0] for records in self.batches)]))
        result = self.log.reader.read(offset, max_bytes, end_offset=bound, min_one_batch=True)
        expected = [r for r in self.batches if r[-1][0] >= offset and r[-1][0] < bound]
        if offset >= bound or not expected:
            assert result.region is None
            return
        assert result.region is not None
        assert result.base_offset == expected[0][0][0]
        region = result.region
        region.file.seek(region.position)
        view = memoryview(region.file.read(region.size))
        headers = list(iter_batches(view))
        assert headers
        assert headers[0].size_bytes >= len(view) or len(view) <= max_bytes
        got = [(r.offset, r.value) for r in read_records(view)]
        wanted = [(r[0], r[1]) for records in expected for r in records]
        assert got == wanted[: len(got)]

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def look_up_a_time(self, data) -> None:
        timestamps = sorted({records[0][2] for records in self.batches})
        timestamp = data.draw(st.sampled_from([timestamps[0] - 1, *timestamps, timestamps[-1] + 1]))
        expected = next(
            (r[0] for records in self.batches for r in records if r[2] >= timestamp and r[0] >= self.start),
            None,
        )
        found = self.log.offset_for_timestamp(timestamp)
        assert (None if found is None else found.offset) == expected

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        log = self.log
        assert log.topic_partition == TP
        assert log.log_end_offset == self.end
        assert log.log_start_offset == self.start
        wanted = [(r[0], r[1]) for records in self.batches for r in records if r[0] >= self.start]
        assert contents(log) == wanted

    @invariant()
    def keeps_its_own_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        for segment in log.segments:
            positions = {p: h.last_offset for p, h in segment.headers_from(0)}
            for relative, position in segment.offset_index.file:
                assert positions[position] == segment.base_offset + relative
            stamps = [t for t, _ in segment.time_index.file]
            assert stamps == sorted(set(stamps))
            assert segment.path(".log").stat().st_size == segment.size
        epochs = log.leader_epochs.entries
        for records in self.batches:
            if records[0][0] >= self.start:
                assert log.leader_epochs.epoch_for_offset(records[0][0]) == records[0][3]
        assert list(epochs) == sorted(set(epochs))


LogModel.TestCase.settings = settings(
    max_examples=int(os.environ.get("LOG_MODEL_EXAMPLES", "60")), stateful_step_count=40, deadline=None
)
test_log_agrees_with_a_list = LogModel.TestCase
