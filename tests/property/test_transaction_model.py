"""Transactions on one log against a list: what consumers of committed records read, and how far."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.cleaning.cleaner import clean_log
from broker.log.cleaning.cleaner_manager import measure
from broker.log.cleaning.offset_map import OffsetMap
from broker.protocol.errors import Errors, KafkaError
from tests.support.clocks import ManualClock
from tests.support.logs import batch, open_log, unlimited
from tests.support.transactions import end, read_committed, write

PIDS = st.integers(1, 4)
KEYS = st.sampled_from([b"a", b"b", b"c"])
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=900,
    index_interval_bytes=80,
    segment_index_bytes=24 * 1024,
    delete_retention_ms=50,
)


class Entry(NamedTuple):
    """A record of the log: a value, or how the producer's transaction ended. ``pid`` is -1 outside of one."""

    offset: int
    pid: int
    epoch: int = 0
    key: bytes = b""
    value: bytes = b""
    sequence: int = -1
    committed: bool | None = None


class Ended(NamedTuple):
    """A transaction that has its marker."""

    pid: int
    first: int
    marker: int
    committed: bool


class TransactionModel(RuleBasedStateMachine):
    """``entries``: everything that was appended and not truncated, also what compaction may have removed."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.clock = ManualClock()
        self.entries: list[Entry] = []
        self.mark = 0
        self.written = 0
        self.is_compacted = False
        self.has_snapshots = True

    @initialize()
    def open(self) -> None:
        self.log = open_log(self.directory, CONFIG, clock=self.clock)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    # -- the oracle

    def replayed(self) -> tuple[dict[int, int], list[Ended]]:
        """The open transactions by their first offsets, and those that ended."""
        open_: dict[int, int] = {}
        ended: list[Ended] = []
        for entry in self.entries:
            if entry.committed is not None:
                first = open_.pop(entry.pid, None)
                if first is not None:
                    ended.append(Ended(entry.pid, first, entry.offset, entry.committed))
            elif entry.pid >= 0:
                open_.setdefault(entry.pid, entry.offset)
        return open_, ended

    def epoch_of(self, pid: int) -> int:
        return max((entry.epoch for entry in self.entries if entry.pid == pid), default=0)

    def next_sequence(self, pid: int) -> int:
        epoch = self.epoch_of(pid)
        own = [entry for entry in self.entries if entry.pid == pid and entry.committed is None]
        return own[-1].sequence + 1 if own and own[-1].epoch == epoch else 0

    def visible(self, stable: int) -> list[tuple[int, bytes, bytes]]:
        _, ended = self.replayed()
        found = []
        for entry in self.entries:
            if not self.log.log_start_offset <= entry.offset < stable or entry.committed is not None:
                continue
            outcome = next(
                (t.committed for t in ended if t.pid == entry.pid and t.first <= entry.offset < t.marker),
                None,
            )
            if entry.pid < 0 or outcome:
                found.append((entry.offset, entry.key, entry.value))
        return found

    # -- what happens

    @property
    def next_offset(self) -> int:
        return self.log.log_end_offset

    @rule(pid=PIDS, key=KEYS)
    def write_in_a_transaction(self, pid: int, key: bytes) -> None:
        self.written += 1
        value, epoch, sequence = b"%d" % self.written, self.epoch_of(pid), self.next_sequence(pid)
        at = self.next_offset
        info = write(self.log, value, pid=pid, key=key, epoch=epoch, sequence=sequence)
        assert (info.first_offset, info.duplicate) == (at, False)
        self.entries.append(Entry(at, pid, epoch, key, value, sequence))

    @rule(key=KEYS)
    def write_outside(self, key: bytes) -> None:
        self.written += 1
        value, at = b"%d" % self.written, self.next_offset
        self.log.append_as_leader(batch(value, key=key), 0)
        self.entries.append(Entry(at, -1, key=key, value=value))

    @rule(pid=PIDS, committed=st.booleans(), bump=st.booleans())
    def end(self, pid: int, committed: bool, bump: bool) -> None:
        """A coordinator that aborts may raise the producer's epoch, which fences it."""
        epoch, at = self.epoch_of(pid) + (bump and not committed), self.next_offset
        end(self.log, committed, pid, epoch=epoch, coordinator=1)
        self.entries.append(Entry(at, pid, epoch, committed=committed))

    @rule(pid=PIDS)
    def a_zombie_is_refused(self, pid: int) -> None:
        epoch = self.epoch_of(pid)
        if epoch == 0 or pid not in self.log.producer_state.producers:
            return
        with pytest.raises(KafkaError) as refused:
            write(self.log, b"zombie", pid=pid, key=b"a", epoch=epoch - 1)
        assert refused.value.error_code is Errors.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError) as refused:
            end(self.log, True, pid, epoch=epoch - 1)
        assert refused.value.error_code is Errors.INVALID_PRODUCER_EPOCH

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        self.mark += int(share * (self.next_offset - self.mark))
        self.log.high_watermark = self.mark

    @rule()
    def replicate_everything(self) -> None:
        self.mark = self.log.high_watermark = self.next_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.mark + int(share * (self.next_offset - self.mark))
        self.log.truncate_to(offset)
        assert self.next_offset == offset
        self.entries = [entry for entry in self.entries if entry.offset < offset]

    @precondition(lambda self: self.has_snapshots)
    @rule(share=st.floats(0, 1))
    def delete_the_oldest(self, share: float) -> None:
        start = self.log.log_start_offset
        self.log.increment_log_start_offset(start + int(share * (self.mark - start)))
        self.log.delete_old_segments()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def compact(self) -> None:
        self.clock.now_ms += 100
        uncleanable = measure(self.log, None, self.clock.now_ms).first_uncleanable_offset
        assert uncleanable <= max(self.log.last_stable_offset(), self.log.segments[0].base_offset)
        if uncleanable > self.log.segments[0].base_offset:
            clean_log(
                self.log, 0, uncleanable, OffsetMap(1 << 20), now_ms=self.clock.now_ms, pace=unlimited()
            )
            self.is_compacted = True

    @rule()
    def compact_until_markers_may_go(self) -> None:
        """The active segment is not compacted, and a marker goes in the pass after the one that marked it. What
        is left must recover to the same state.
        """
        self.replicate_everything()
        self.log.roll()
        self.write_outside(b"a")
        for _ in range(3):
            self.compact()
        self.crash(rebuilds=True)

    @rule()
    def restart(self) -> None:
        start = self.log.log_start_offset
        self.log.close()
        self._reopen(start, clean=True)

    @rule(rebuilds=st.booleans())
    def crash(self, rebuilds: bool) -> None:
        """All data reached the disk; ``rebuilds``: no index did, and no snapshot unless retention needs it: without
        a snapshot, nothing is known of a transaction whose begin is deleted.
        """
        start, point = self.log.log_start_offset, 0 if rebuilds else self.log.recovery_point
        if rebuilds:
            self.has_snapshots = self.has_snapshots and start > 0
            suffixes = ["txnindex", "index", "timeindex"] + ["snapshot"] * (not self.has_snapshots)
            for suffix in suffixes:
                for path in (self.directory / "t-0").glob(f"*.{suffix}"):
                    path.unlink()
        self._reopen(start, clean=False, recovery_point=point)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    def _reopen(self, start: int, *, clean: bool, recovery_point: int = 0) -> None:
        self.log = open_log(
            self.directory,
            CONFIG,
            clock=self.clock,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
        )
        self.log.high_watermark = self.mark

    # -- what must hold

    @invariant()
    def the_stable_offset_is_that_of_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        open_, ended = self.replayed()
        start = self.log.log_start_offset
        highest = max(min([self.mark, *open_.values()]), start)
        # What ended and is not replicated counts, too, but a restart or a truncation may forget it.
        lowest = max(min([highest, *(t.first for t in ended if t.marker >= self.mark)]), start)
        assert lowest <= self.log.last_stable_offset() <= highest

    @invariant()
    def consumers_read_what_was_committed(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = self.visible(self.log.last_stable_offset())
        for max_bytes in (1, 1 << 20):
            found = [(r.offset, r.key, r.value) for r in read_committed(self.log, max_bytes)]
            if self.is_compacted:
                assert {key: value for _, key, value in found} == {key: value for _, key, value in expected}
                assert set(found) <= set(expected)
            else:
                assert found == expected

    @invariant()
    def the_index_has_aborted_transactions_only(self) -> None:
        if not hasattr(self, "log"):
            return
        _, ended = self.replayed()
        aborted = {(t.pid, t.marker): t.first for t in ended if not t.committed}
        for pid, first, marker, _ in look_ups.aborted_transactions(self.log.segments, 0, 1 << 62):
            began = aborted[pid, marker]
            # An index that was made anew begins with what compaction has left of the transaction.
            assert began <= first < marker if self.is_compacted else began == first


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTransactionModel.pytestmark = [pytest.mark.usefixtures("quiet")]
