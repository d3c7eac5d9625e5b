"""The logs of a topic with thousands of partitions are made together, and no record is without its topic's id."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from broker.config.log_config import LogConfig
from broker.log import log_maker
from broker.log.log_maker import WantedLog
from broker.log.log_manager import LogManager
from broker.log.partition_metadata import FILE_NAME, read_topic_id
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition

COUNT = 40
TOPIC_ID = UUID(int=7)
MANY = [WantedLog(TopicPartition("t", n), TOPIC_ID, is_new=True) for n in range(COUNT)]


@pytest.fixture
def asked() -> list[str]:
    """Topics whose configs were asked for."""
    return []


@pytest.fixture
def manager(tmp_path, asked):
    def config(topic: str) -> LogConfig:
        asked.append(topic)
        return LogConfig()

    manager = LogManager([str(tmp_path / "1"), str(tmp_path / "2")], LogConfig(), config)
    manager.startup()
    yield manager
    manager.shutdown()


@pytest.fixture
def syncs(monkeypatch) -> list[str]:
    """What was synced: a file, or a whole file system with the names of topic id files at that moment."""
    synced: list[str] = []

    def sync_filesystem(path: Path) -> None:
        names = {name.name for name in path.glob(f"*/{FILE_NAME}*")}
        synced.append(" ".join(sorted(names)))

    monkeypatch.setattr(log_maker, "sync_filesystem", sync_filesystem)
    monkeypatch.setattr(os, "fsync", lambda _fd: synced.append("file"))
    return synced


def test_many_logs_are_synced_twice_and_not_each(manager, syncs, tmp_path) -> None:
    assert manager.make(MANY) == {}
    prepared, named = f"{FILE_NAME}.tmp", FILE_NAME
    assert syncs == [prepared, prepared, named, named], "two directories: contents first, then the names"
    assert all(manager.get(wanted.topic_partition).topic_id == TOPIC_ID for wanted in MANY)
    assert all(read_topic_id(manager.get(wanted.topic_partition).dir) == TOPIC_ID for wanted in MANY)
    assert [len(list((tmp_path / d).glob("t-*"))) for d in "12"] == [COUNT // 2, COUNT // 2]


def test_a_new_log_costs_a_directory_and_two_files_and_nothing_is_looked_for_in_it(
    manager, monkeypatch, tmp_path
):
    """On the way to ten thousand partitions each further call of the file system is a second."""
    called: Counter[str] = Counter()

    def count(name: str) -> None:
        real = getattr(os, name)

        def call(path, *args, **options):
            called[name] += str(path).startswith(str(tmp_path))
            return real(path, *args, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("listdir", "unlink", "mkdir", "scandir"):
        count(name)
    monkeypatch.setattr(log_maker, "sync_filesystem", lambda _path: None)
    assert manager.make(MANY) == {}
    assert +called == {"mkdir": COUNT}
    log = manager.get(MANY[0].topic_partition)
    assert sorted(path.name for path in log.dir.iterdir()) == [f"{0:020d}.log", FILE_NAME]


def test_a_few_logs_are_synced_each_for_itself(manager, syncs) -> None:
    assert manager.make(MANY[:2]) == {}
    assert syncs == ["file"] * 4


def test_configs_are_asked_for_once_a_topic(manager, asked) -> None:
    manager.make([*MANY, WantedLog(TopicPartition("u", 0), None, is_new=True)])
    assert sorted(asked) == ["t", "u"]
    manager.make(MANY)
    assert len(asked) == 2, "all of them are there"


def test_a_log_that_cannot_be_made_does_not_stop_the_others(manager, monkeypatch) -> None:
    real = log_maker.prepare_topic_id

    def prepare(directory: Path, topic_id: UUID) -> None:
        if directory.name == "t-3":
            raise OSError(errno.ENOSPC, "No space left on device", str(directory))
        real(directory, topic_id)

    monkeypatch.setattr(log_maker, "prepare_topic_id", prepare)
    failed = manager.make(MANY)
    assert {tp: error.error_code for tp, error in failed.items()} == {
        TopicPartition("t", 3): Errors.KAFKA_STORAGE_ERROR
    }
    assert manager.get(TopicPartition("t", 3)).topic_id is None
    assert manager.get(TopicPartition("t", 4)).topic_id == TOPIC_ID


def test_no_log_has_its_id_when_the_disk_did_not_take_them(manager, monkeypatch) -> None:
    def sync_filesystem(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_maker, "sync_filesystem", sync_filesystem)
    assert manager.make(MANY).keys() == {wanted.topic_partition for wanted in MANY}
    assert all(manager.get(wanted.topic_partition).topic_id is None for wanted in MANY)
