"""A seeded workload of a broker's logs on a recorded disk, and their guarantees at each moment.

The guarantee of a log: data that it reported as durable (``flush``) is there byte for byte. Everything else
may be lost from the end on. Data that is found was written once, at that place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest

from broker.config.log_config import LogConfig
from broker.log import log_maker
from broker.log.log import AppendOrigin, Log
from broker.log.log_maker import WantedLog
from broker.log.log_manager import LogManager
from broker.record.batch import Record, build_batch
from broker.record.header import iter_batches
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.recorded_disk import Recorder

DIRECTORY = "d"
PARTITIONS = (TopicPartition("a", 0), TopicPartition("b", 0))
CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=120, segment_index_bytes=360, retention_ms=-1, retention_bytes=-1
)
COMPACTED = replace(
    CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01, segment_bytes=700
)
PRODUCERS = (11, 12)
_ABORT, _COMMIT = b"\0\0\0\0", b"\0\0\0\1"


@dataclass(frozen=True, slots=True)
class Promise:
    """A guarantee of a log. ``durable``: base offset to bytes of the data that must be there; ``end_offset``:
    the lowest possible end of the log.

    ``latest``, for a compacted log: the last record of a key is at that offset or later.
    """

    durable: Mapping[int, bytes] = field(default_factory=dict)
    end_offset: int = 0
    latest: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class Told:
    """One partition's history: every version of every batch, by base offset, and its promises.

    Each promise holds from an operation number on.
    """

    written: dict[int, set[bytes]] = field(default_factory=dict)
    records: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    promises: list[tuple[int, Promise]] = field(default_factory=list)

    def promise_at(self, moment: int) -> Promise:
        """The last promise that was made when this many operations were done."""
        return next((promise for since, promise in reversed(self.promises) if since <= moment), Promise())


class Workload:
    """A workload; ``told`` and ``recorder.ops`` are the results."""

    def __init__(self, root: Path, seed: int, config: LogConfig = CONFIG) -> None:
        self.recorder = Recorder(root)
        self.rng = random.Random(seed)
        # Whether the logs are created with one sync for all, as those of a topic with thousands
        # of partitions.
        self.makes_together = bool(seed % 2)
        self.clock = ManualClock()
        self.config = config
        self.told = {partition: Told() for partition in PARTITIONS}
        self._path = root / DIRECTORY
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        self._epochs = dict.fromkeys(PARTITIONS, 0)

    def run(self, steps: int) -> None:
        with self.recorder.recording():
            self._start()
            for _ in range(steps):
                self.clock.now_ms += self.rng.randrange(50)
                self._step(self.rng.choice(PARTITIONS))
            self._stop()

    def _start(self) -> None:
        self.manager = LogManager([str(self._path)], self.config, clock=self.clock)
        self.manager.startup()
        if self.makes_together:
            wanted = [WantedLog(partition, TOPIC_IDS[partition], is_new=True) for partition in PARTITIONS]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(log_maker, "_FEW_IDS", 0)
                assert self.manager.make(wanted) == {}
        for partition in PARTITIONS:
            self.manager.get_or_create(partition, TOPIC_IDS[partition])
        self._note_bounds()

    def _stop(self) -> None:
        self.manager.shutdown()
        for partition in PARTITIONS:  # all was synced before the marker was written
            told = self.told[partition]
            content = self._content(partition, self._starts[partition])
            told.promises.append((len(self.recorder.ops), Promise(content, self._ends[partition])))

    def _step(self, partition: TopicPartition) -> None:
        log = self.manager.get(partition)
        assert log is not None
        actions = self._actions()
        self.rng.choices(list(actions), list(actions.values()))[0](log)
        self._note_bounds()

    def _note_bounds(self) -> None:
        logs = self.manager.all_logs()
        self._ends = {log.topic_partition: log.log_end_offset for log in logs}
        self._starts = {log.topic_partition: log.log_start_offset for log in logs}

    def _actions(self) -> Mapping[Callable[[Log], None], int]:
        """The possible actions and their weights."""
        return {
            self._append: 30,
            self._append_transaction: 5,
            self._follow: 6,
            self._flush: 5,
            self._sync_records: 12,
            self._checkpoint: 6,
            self._new_epoch: 3,
            self._roll: 3,
            self._truncate: 3,
            self._truncate_fully: 1,
            self._retain: 3,
            self._restart: 1,
        }

    # -- steps

    def _records(self, count: int, size: int) -> list[Record]:
        return [
            Record(None, self.rng.randbytes(self.rng.randrange(size)), (), self.clock.now_ms + n)
            for n in range(count)
        ]

    def _append(self, log: Log) -> None:
        producer = self.rng.choice((None, *PRODUCERS))
        records = self._records(self.rng.randrange(1, 4), 120)
        self._send(log, records, {} if producer is None else self._sequence_of(log, producer, len(records)))

    def _sequence_of(self, log: Log, producer: int, count: int) -> dict[str, int]:
        known = log.producer_state.producers.get(producer)
        sequence = known.batches[-1].last_sequence + 1 if known is not None and known.batches else 0
        return {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}

    def _send(self, log: Log, records: list[Record], options: Mapping[str, int], **flags: bool) -> None:
        view = memoryview(bytearray(build_batch(records, **options, **flags)))
        origin = AppendOrigin.COORDINATOR if flags else AppendOrigin.CLIENT
        told = self.told[log.topic_partition]
        # Noted before it is written: a crash during the write may leave it whole.
        expected = bytearray(view)
        _place(expected, log.log_end_offset, self._epochs[log.topic_partition])
        told.written.setdefault(log.log_end_offset, set()).add(bytes(expected))
        log.append_as_leader(view, self._epochs[log.topic_partition], origin=origin)
        assert view == expected

    def _append_transaction(self, log: Log) -> None:
        producer = 21
        options = self._sequence_of(log, producer, 1)
        self._send(log, self._records(1, 60), options, transactional=True)
        outcome = self.rng.choice((_ABORT, _COMMIT))
        marker = Record(outcome, b"\0\0\0\0\0\1", (), self.clock.now_ms)
        options = {"producer_id": producer, "producer_epoch": 0}
        self._send(log, [marker], options, transactional=True, control=True)

    def _follow(self, log: Log) -> None:
        """Appends several batches of a leader at once."""
        told = self.told[log.topic_partition]
        epoch = self._epochs[log.topic_partition]
        data, offset = b"", log.log_end_offset
        for _ in range(self.rng.randrange(1, 6)):
            records = self._records(self.rng.randrange(1, 3), 200)
            batch = build_batch(records, base_offset=offset, leader_epoch=epoch)
            told.written.setdefault(offset, set()).add(batch)
            data, offset = data + batch, offset + len(records)
        log.append_as_follower(memoryview(bytearray(data)))

    def _flush(self, log: Log) -> None:
        log.flush()
        content = self._content(log.topic_partition, log.log_start_offset)
        self._promise(log, Promise(content, log.log_end_offset))

    def _sync_records(self, log: Log) -> None:
        """As for an answer with ``flush.messages``."""
        log.sync_records()
        content = self._content(log.topic_partition, log.log_start_offset)
        self._promise(log, Promise(content, log.log_end_offset))

    def _promise(self, log: Log, promise: Promise) -> None:
        self.told[log.topic_partition].promises.append((len(self.recorder.ops), promise))

    def _kept(self, log: Log) -> Promise:
        return self.told[log.topic_partition].promise_at(len(self.recorder.ops))

    def _content(self, partition: TopicPartition, start_offset: int) -> dict[int, bytes]:
        """The batches in the files, except those with only deleted records."""
        found = {}
        for path in sorted((self._path / str(partition)).glob("*.log")):
            view = memoryview(path.read_bytes())
            position = 0
            for header in iter_batches(view):
                if header.last_offset >= start_offset:
                    found[header.base_offset] = bytes(view[position : position + header.size_bytes])
                position += header.size_bytes
        return found

    def _checkpoint(self, log: Log) -> None:
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_log_starts()
        self.manager.checkpoint_high_watermarks({log.topic_partition: log.high_watermark})

    def _new_epoch(self, log: Log) -> None:
        self._epochs[log.topic_partition] += 1
        log.leader_epochs.assign(self._epochs[log.topic_partition], log.log_end_offset)

    def _roll(self, log: Log) -> None:
        log.roll()

    def _truncate(self, log: Log) -> None:
        """Like a follower whose leader diverged: later batches have a later epoch."""
        offset = self.rng.randrange(
            max(log.log_start_offset, log.log_end_offset - 12), log.log_end_offset + 1
        )
        kept = self._kept(log)
        durable = {base: data for base, data in kept.durable.items() if _last_offset(data) < offset}
        end = max((_last_offset(data) + 1 for data in durable.values()), default=0)
        self._promise(log, Promise(durable, min(kept.end_offset, end)))
        log.truncate_to(offset)
        self._new_epoch(log)

    def _truncate_fully(self, log: Log) -> None:
        self._promise(log, Promise())
        log.truncate_fully_and_start_at(log.log_end_offset + self.rng.randrange(20))
        self._new_epoch(log)

    def _retain(self, log: Log) -> None:
        log.high_watermark = log.log_end_offset
        start = self.rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        kept = self._kept(log)
        durable = {base: data for base, data in kept.durable.items() if _last_offset(data) >= start}
        self._promise(log, replace(kept, durable=durable))
        log.increment_log_start_offset(start)
        log.delete_old_segments()

    def _restart(self, log: Log) -> None:
        self._stop()
        self._start()


class CompactingWorkload(Workload):
    """The same with keys and the cleaner, without actions that remove records from the end."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed, COMPACTED)
        self._latest: dict[TopicPartition, dict[bytes, int]] = {partition: {} for partition in PARTITIONS}

    def _actions(self) -> Mapping[Callable[[Log], None], int]:
        return {
            self._put: 30,
            self._flush: 5,
            self._checkpoint: 3,
            self._new_epoch: 2,
            self._clean: 4,
            self._restart: 1,
        }

    def _put(self, log: Log) -> None:
        records = [
            Record(b"%d" % self.rng.randrange(12), self.rng.randbytes(40), (), self.clock.now_ms)
            for _ in "abc"
        ]
        for offset, record in enumerate(records, log.log_end_offset):
            assert record.key is not None
            assert record.value is not None
            self.told[log.topic_partition].records[offset] = (record.key, record.value)
            self._latest[log.topic_partition][record.key] = offset
        producer = self.rng.choice(PRODUCERS)
        self._send(log, records, self._sequence_of(log, producer, len(records)))
        log.high_watermark = log.log_end_offset

    def _clean(self, log: Log) -> None:
        self.manager.cleaner.run()

    def _flush(self, log: Log) -> None:
        log.flush()
        latest = dict(self._latest[log.topic_partition])
        self._promise(log, Promise({}, log.log_end_offset, latest))

    def _stop(self) -> None:
        self.manager.shutdown()
        for partition in PARTITIONS:
            promise = Promise({}, self._ends[partition], dict(self._latest[partition]))
            self.told[partition].promises.append((len(self.recorder.ops), promise))


TOPIC_IDS = {partition: UUID(int=number + 1) for number, partition in enumerate(PARTITIONS)}


def _place(batch: bytearray, offset: int, epoch: int) -> None:
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")


def _last_offset(batch: bytes) -> int:
    (header,) = iter_batches(memoryview(batch))
    return header.last_offset
