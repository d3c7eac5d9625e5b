"""Every file in log directories that Apache Kafka 3.9.1 wrote, read by the code that must take them over."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import look_ups
from broker.log.checkpoints import OffsetCheckpoint
from broker.log.dirs.meta_properties import read_meta_properties
from broker.log.log_manager import LogManager, LogManagerSettings
from broker.log.partition_metadata import read_topic_id, topic_id_text
from broker.log.producers.producer_snapshot import (
    read_snapshot,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from broker.log.segments.txn_index import TransactionIndex
from broker.record.batch import iter_batches, read_records
from broker.utils.topic_partition import TopicPartition

ARCHIVE = Path(__file__).parents[2] / "data" / "kafka-3.9.1-log-dirs.tgz"
BROKERS = ("k1", "k2")


@pytest.fixture(scope="module")
def kafka_dirs(tmp_path_factory):
    target = tmp_path_factory.mktemp("kafka")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(target)  # ours; Debian 12's Python knows no filters yet
    return target


@pytest.fixture(params=BROKERS)
def kafka_dir(request, kafka_dirs, tmp_path):
    """A copy of one broker's directory."""
    return shutil.copytree(kafka_dirs / request.param, tmp_path / request.param)


@pytest.fixture
def loaded(kafka_dir):
    manager = LogManager([str(kafka_dir)], LogConfig())
    manager.startup()
    yield manager
    manager.shutdown()


def walk(log):
    """All batch headers and records of a log."""
    offset, headers, records = log.log_start_offset, [], []
    while len(view := log.read_bytes(offset, 1 << 20)):
        headers += list(iter_batches(view))
        records += read_records(view, include_control=True)
        offset = headers[-1].next_offset
    return headers, records


def test_the_directory_is_recognised(kafka_dir):
    manager = LogManager([str(kafka_dir)], LogConfig())
    manager.lock_and_check()
    assert manager.clean is (kafka_dir.name == "k1")  # the other one was killed
    assert manager.dirs.broker_id == int(kafka_dir.name[1])
    assert manager.dirs.cluster_id == "lUAH2HSRRUa4sEHpcgwiAw"
    assert read_meta_properties(kafka_dir).broker_id == manager.dirs.broker_id
    manager.shutdown()


def test_every_log_ends_where_kafka_says(kafka_dir, loaded):
    ends = OffsetCheckpoint(kafka_dir, "recovery-point-offset-checkpoint").read()
    assert len(ends) > 25
    assert {log.topic_partition: log.log_end_offset for log in loaded.all_logs()} == ends
    starts = OffsetCheckpoint(kafka_dir, "log-start-offset-checkpoint").read()
    for topic_partition, start in starts.items():
        assert loaded.get(topic_partition).log_start_offset == start
    marks = OffsetCheckpoint(kafka_dir, "replication-offset-checkpoint").read()
    assert marks == loaded.read_high_watermarks()


def test_every_record_is_read_and_every_offset_found(loaded):
    total = 0
    for log in loaded.all_logs():
        headers, records = walk(log)
        assert sum(header.record_count for header in headers) == len(records)
        total += len(records)
        for header in headers[:: max(len(headers) // 50, 1)]:
            for offset in {header.base_offset, header.last_offset} - set(range(log.log_start_offset)):
                result = log.reader.read(offset, 1, end_offset=log.log_end_offset, min_one_batch=True)
                assert result.base_offset == header.base_offset
    assert total > 50_000


def test_every_index_entry_points_to_its_batch(loaded):
    entries = 0
    for log in loaded.all_logs():
        for segment in log.segments:
            assert segment.offset_index.is_sane(segment.size)
            assert segment.time_index.is_sane()
            headers = dict(segment.headers_from(0))
            for relative, position in segment.offset_index.file:
                # A follower's append of many batches is one entry in Kafka's index: the last offset of them all.
                assert headers[position].last_offset <= segment.base_offset + relative
                entries += 1
            stamps = [timestamp for timestamp, _ in segment.time_index.file]
            assert stamps == sorted(set(stamps))
            if stamps:
                assert stamps[-1] == max(header.max_timestamp for header in headers.values())
    assert entries > 100


def test_times_are_found_as_a_scan_finds_them(loaded):
    for log in loaded.all_logs():
        records = [record for record in walk(log)[1] if record.offset >= log.log_start_offset]
        for record in records[:: max(len(records) // 10, 1)]:
            expected = next(r.offset for r in records if r.timestamp >= record.timestamp)
            assert log.offset_for_timestamp(record.timestamp).offset == expected


def test_producer_snapshots_are_read_and_written_back_byte_for_byte(kafka_dir, tmp_path):
    producers = 0
    for directory in kafka_dir.glob("*-*/"):
        for offset in snapshot_offsets(directory):
            path = snapshot_path(directory, offset)
            entries = list(read_snapshot(path))
            producers += len(entries)
            write_snapshot(tmp_path / "again", entries, sync=False)
            assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert producers > 10


def test_aborted_transactions_are_in_the_index(loaded):
    log = loaded.get(TopicPartition("t1", 0))
    assert [tuple(entry) for entry in look_ups.aborted_transactions(log.segments, 0, 295)] == [
        (1005, 276, 293, 294)
    ]
    assert look_ups.aborted_transactions(log.segments, 294, 295) == []
    found = []
    TransactionIndex(log.segments[0].txn_index.path).collect(276, 277, found)
    assert found


def test_topic_ids_and_epochs_are_kafkas(kafka_dir, loaded):
    assert topic_id_text(read_topic_id(kafka_dir / "t1-0")) == "uYNj6CzFTruy9O1_wYKzpg"
    for log in loaded.all_logs():
        assert log.topic_id is not None
        headers, _ = walk(log)
        for header in headers:
            assert log.leader_epochs.epoch_for_offset(header.last_offset) == header.leader_epoch


def test_the_smallest_set_that_kafka_needs_is_enough_for_us(kafka_dirs, kafka_dir):
    """Nothing but the ``.log`` files, meta.properties and the high watermarks: the rest is made again."""
    expected = {}
    manager = LogManager([str(kafka_dir)], LogConfig())
    manager.startup()
    for log in manager.all_logs():
        producers = {p.producer_id: (p.epoch, p.last_sequence) for p in log.producer_state.producers.values()}
        expected[log.topic_partition] = (
            log.log_end_offset,
            log.leader_epochs.entries[-1:],
            producers,
            look_ups.aborted_transactions(log.segments, 0, log.log_end_offset),
        )
    manager.shutdown()
    keep = {"meta.properties", "replication-offset-checkpoint"}
    for path in kafka_dir.rglob("*"):
        if path.is_file() and path.suffix != ".log" and path.name not in keep:
            path.unlink()
    again = LogManager(
        [str(kafka_dir)], LogConfig(), settings=LogManagerSettings(num_recovery_threads_per_data_dir=2)
    )
    again.startup()
    for log in again.all_logs():
        end, epochs, producers, aborted = expected[log.topic_partition]
        assert log.log_end_offset == end
        assert log.leader_epochs.entries[-1:] == epochs
        assert look_ups.aborted_transactions(log.segments, 0, end) == aborted
        found = {p.producer_id: (p.epoch, p.last_sequence) for p in log.producer_state.producers.values()}
        # Kafka's snapshot may have forgotten producers that expired; those it has are the same.
        assert found.items() >= producers.items()
    again.shutdown()
    untouched = kafka_dirs / kafka_dir.name
    for path in untouched.glob("*/*.log"):
        assert (kafka_dir / path.relative_to(untouched)).read_bytes() == path.read_bytes()


def test_rebuilt_offset_indexes_find_every_batch_as_kafkas_do(kafka_dir):
    for path in [*kafka_dir.glob("*/*.index"), *kafka_dir.glob("*/*.timeindex")]:
        path.unlink()
    manager = LogManager([str(kafka_dir)], LogConfig())
    manager.startup()
    for log in manager.all_logs():
        segment = log.segments[0]
        headers = dict(segment.headers_from(0))
        for relative, position in segment.offset_index.file:
            assert headers[position].last_offset == segment.base_offset + relative
    manager.shutdown()
