"""Reading a coordinator's partition: it ends, whatever its batches say of themselves."""

from __future__ import annotations

import pytest

from broker.coordinator.common.replay import BatchReplay, LoadError, read_all
from broker.record.batch import BatchHeader, Record, build_batch


class Replay(BatchReplay):
    def __init__(self) -> None:
        super().__init__()
        self.offsets: list[int] = []

    def feed_record(self, record: Record, header: BatchHeader) -> None:
        self.offsets.append(record.offset)


class Log:
    """Answers each read with the batch that it has for that offset."""

    log_start_offset = 0
    log_end_offset = 3

    def __init__(self, batches: dict[int, bytes]) -> None:
        self.batches = batches

    def read_bytes(self, offset: int, max_bytes: int) -> memoryview:
        return memoryview(self.batches.get(offset, b""))


def batch(base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + build_batch([Record(b"k", b"v", (), 0)])[8:]


def test_a_log_is_fed_to_its_end() -> None:
    replay = Replay()
    assert read_all(Log({0: batch(0) + batch(1), 2: batch(2)}), replay, lambda: True)
    assert replay.offsets == [0, 1, 2]


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ({0: batch(0)}, "nothing to read at offset 1 of 3"),
        ({0: batch(0), 1: batch(1), 2: batch(0)}, "the batch at offset 2 claims to end before 1"),
    ],
    ids=["that has nothing", "that leads back"],
)
def test_a_read_ends_the_load(batches: dict[int, bytes], reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        read_all(Log(batches), Replay(), lambda: True)
