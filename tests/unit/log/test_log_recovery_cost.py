"""What a start after a kill reads again of logs that sync each record: no more than the last checkpoint leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.log.log_manager import LogManager
from tests.support.logs import TP, batch, contents, managed

BATCH = batch(b"v" * 50).nbytes


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(batch(b"v" * 50, timestamp=1_000 + log.log_end_offset), 0)
        log.sync_records()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The bytes that recovery has verified, by file name."""
    found: dict[str, int] = {}
    real = os.preadv

    def preadv(fd: int, buffers: list[bytearray], offset: int) -> int:
        count = real(fd, buffers, offset)
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        found[name] = found.get(name, 0) + count
        return count

    monkeypatch.setattr(os, "preadv", preadv)
    return found


def killed(directory: Path) -> Path:
    """A copy of the files as they are now, which is what a kill leaves."""
    return Path(
        shutil.copytree(directory, directory.with_name("killed"), ignore=shutil.ignore_patterns(".lock"))
    )


def test_after_a_kill_only_what_was_written_since_the_checkpoint_is_read(
    tmp_path: Path, read: dict[str, int]
) -> None:
    """Ten segments lie before the checkpoint, one around it, and two behind it."""
    config = LogConfig(segment_bytes=4096, index_interval_bytes=100, flush_messages=1)
    manager = managed(tmp_path / "logs", config)
    log = manager.get_or_create(TP, None)
    while log.num_segments <= 10:
        append(log)
    append(log, 25)
    manager.checkpoint_recovery_points()
    at_checkpoint = log.size_bytes
    while log.num_segments <= 12:
        append(log)
    written_since = log.size_bytes - at_checkpoint
    end, values = log.log_end_offset, contents(log)
    progress: list[tuple[int, int]] = []
    again = LogManager([str(killed(tmp_path / "logs"))], config)
    again.startup(progress=lambda now: progress.append((now.segments, now.segments_total)))
    found = again.get(TP)
    assert found is not None
    assert (found.log_end_offset, contents(found)) == (end, values)
    assert progress[-1] == (3, 3)
    assert len(read) == 3
    # From the last index entry before the recovery point on: an interval and a batch.
    assert sum(read.values()) <= written_since + 2 * BATCH + 100, read
    again.shutdown()
