"""Small files carry a checksum that Kafka does not see: a flipped bit in one is mended, more is refused."""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from pathlib import Path

import pytest

from broker.log.checkpoints import CheckpointError, OffsetCheckpoint
from broker.log.dirs.log_dir import LogDir
from broker.log.dirs.meta_properties import read_meta_properties, write_meta_properties
from broker.log.errors import LogDirError
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.partition_metadata import prepare_topic_id, read_topic_id, take_up_topic_id, write_topic_id
from broker.log.sealed_file import ATTRIBUTE, read_file, replace_file
from broker.utils.topic_partition import TopicPartition

ID = uuid.UUID(int=0x1234567890ABCDEF << 40)


def hurt(path: Path, *bits: int) -> None:
    """Flips bits where they are, as a disk does: the file stays the same."""
    with path.open("r+b") as file:
        data = bytearray(file.read())
        for bit in bits:
            data[bit // 8] ^= 1 << bit % 8
        file.seek(0)
        file.write(data)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With a file of each kind."""
    write_topic_id(tmp_path, ID)
    write_meta_properties(tmp_path, 3, "abcDEF")
    OffsetCheckpoint(tmp_path, "recovery-point-offset-checkpoint").write(
        {TopicPartition("t", n): 100 + n for n in range(4)}
    )
    cache = LeaderEpochCache(tmp_path)
    cache.assign(1, 0)
    cache.assign(5, 70)
    cache.flush()
    return tmp_path


READERS = {
    "partition.metadata": read_topic_id,
    "meta.properties": read_meta_properties,
    "recovery-point-offset-checkpoint": lambda d: OffsetCheckpoint(
        d, "recovery-point-offset-checkpoint"
    ).read(),
    "leader-epoch-checkpoint": lambda d: LeaderEpochCache(d).entries,
}


@pytest.mark.parametrize("name", READERS)
def test_any_one_bit_is_mended_and_told(directory, name, capsys):
    expected = READERS[name](directory)
    path = directory / name
    for bit in range(path.stat().st_size * 8):
        hurt(path, bit)
        assert READERS[name](directory) == expected, bit
        hurt(path, bit)
    assert capsys.readouterr().out.count("file_mended") == path.stat().st_size * 8


def test_more_than_a_bit_is_refused_with_what_to_do(directory):
    for name in READERS:
        hurt(directory / name, 3, 9, 77)
    with pytest.raises(ValueError, match="setfattr -x"):
        read_topic_id(directory)
    with pytest.raises(LogDirError, match="setfattr -x"):
        read_meta_properties(directory)
    checkpoint = OffsetCheckpoint(directory, "recovery-point-offset-checkpoint")
    with pytest.raises(CheckpointError, match="setfattr -x"):
        checkpoint.read()
    assert LogDir(directory).read_checkpoint(checkpoint) == {}
    assert LeaderEpochCache(directory).must_be_rebuilt


def test_a_file_without_a_checksum_is_taken_as_kafkas(directory):
    path = directory / "partition.metadata"
    os.removexattr(path, ATTRIBUTE)
    assert read_topic_id(directory) == ID
    path.unlink()
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert read_topic_id(directory) == uuid.UUID(int=1)


def test_ids_that_are_prepared_for_many_directories_carry_one_too(tmp_path):
    prepare_topic_id(tmp_path, ID)
    take_up_topic_id(tmp_path)
    hurt(tmp_path / "partition.metadata", 200)
    assert read_topic_id(tmp_path) == ID


def test_a_file_that_is_replaced_while_it_is_read_is_the_old_one_or_the_new_one_and_not_damaged(tmp_path):
    path, stop = tmp_path / "file", threading.Event()
    contents = [b"a" * 60_000, b"b" * 90_000]  # too long to be mended
    replace_file(path, contents[0], sync=False)

    def replace_again_and_again():
        for number in itertools.count():
            if stop.is_set():
                return
            replace_file(path, contents[number % 2], sync=False)

    writer = threading.Thread(target=replace_again_and_again)
    writer.start()
    try:
        assert {read_file(path) for _ in range(3000)} <= set(contents)
    finally:
        stop.set()
        writer.join()
