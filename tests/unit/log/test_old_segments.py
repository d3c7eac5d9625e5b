"""Logs with messages of magic 0 and 1, as an old cluster left them: they are rewritten when they are loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.config.log_config import LogConfig
from broker.log.errors import LogDirError
from broker.log.loading import old_segments
from broker.log.log import Log
from broker.log.segments.segment import sync_dir
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, iter_batches, read_records
from broker.record.message_set import wrapped, write_message
from tests.support.logs import batch, contents, open_log
from tests.support.times import NOW_MS
from tests.support.transactions import ABORT, end, read_committed, write

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}


def plain(magic: int, *offsets: int, attributes: int = 0) -> bytes:
    out = bytearray()
    for offset in offsets:
        write_message(out, magic, offset, NOW_MS + offset, b"key", b"%d" % offset, attributes)
    return bytes(out)


def wrapper(magic: int, codec: str, *offsets: int, append_time: bool = False) -> bytes:
    """As a broker stores it: relative offsets inside magic 1."""
    inside = bytearray()
    for offset in offsets:
        relative = offset - offsets[0] if magic else offset
        write_message(inside, magic, relative, NOW_MS + offset, b"key", b"%d" % offset)
    return wrapped(inside, magic, CODECS[codec], offsets[-1], NOW_MS + offsets[-1], append_time=append_time)


def put(directory: Path, base_offset: int, *parts: bytes) -> Path:
    """A segment's file in the log's directory, last changed a day ago."""
    folder = directory / "t-0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(parts))
    os.utime(path, (NOW_MS // 1000 - 86_400,) * 2)
    for index in (".index", ".timeindex"):
        path.with_suffix(index).write_bytes(b"12345678")  # positions of the old file
    return path


def records_of(log: Log) -> list[Record]:
    return read_records(log.read_bytes(log.log_start_offset, 1 << 24))


def expected(offsets: Sequence[int], magic: int = 1) -> list[Record]:
    return [Record(b"key", b"%d" % n, (), NOW_MS + n if magic else -1, n) for n in offsets]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_log_of_old_messages_is_loaded_with_its_records(
    tmp_path: Path, codec: str, magic: int, clean: bool
) -> None:
    path = put(
        tmp_path,
        0,
        plain(magic, 0, 1, 2),
        b"" if codec == "none" else wrapper(magic, codec, 3, 4, 5),
        plain(magic, 6, 9),
    )
    log = open_log(tmp_path, clean=clean)
    kept = [0, 1, 2, 6, 9] if codec == "none" else [0, 1, 2, 3, 4, 5, 6, 9]
    assert records_of(log) == expected(kept, magic)
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    assert path.stat().st_mtime == NOW_MS // 1000 - 86_400
    assert {header.magic for header in iter_batches(path.read_bytes())} == {2}
    log.append_as_leader(batch(b"new"), 3)
    log.close()
    again = open_log(tmp_path)
    assert contents(again)[-1] == (10, b"new")
    assert again.leader_epochs.entries[-1] == (3, 10)


def test_messages_that_another_writer_stored_are_read(tmp_path: Path) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for number in range(1000):
        builder.append(number, NOW_MS + number, b"key", b"%d" % number)
    put(tmp_path, 0, bytes(builder.build()))
    log = open_log(tmp_path)
    assert records_of(log) == expected(range(1000))
    found = log.offset_for_timestamp(NOW_MS + 500)
    assert found is not None
    assert found.offset == 500


def test_a_log_that_changed_its_format_inside_a_segment_keeps_its_batches(tmp_path: Path) -> None:
    batches = open_log(tmp_path / "new")
    batches.append_as_follower(batch(b"a", b"b", timestamp=NOW_MS, base_offset=4, leader_epoch=7))
    newer = bytes(batches.read_bytes(4, 9999))
    path = put(tmp_path, 0, plain(0, 0, 1), plain(1, 2, 3), newer)
    put(tmp_path, 6, newer.replace((4).to_bytes(8, "big"), (6).to_bytes(8, "big"), 1))
    log = open_log(tmp_path, clean=False)
    assert [offset for offset, _ in contents(log)] == list(range(8))
    assert path.read_bytes().endswith(newer)
    assert log.leader_epochs.entries[-1] == (7, 4)


def test_each_old_segment_is_rewritten_and_newer_ones_are_left(tmp_path: Path) -> None:
    paths = [put(tmp_path, base, plain(1, *range(base, base + 10))) for base in (0, 10, 20)]
    log = open_log(tmp_path)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]
    assert records_of(log) + records_of_from(log, 10) == expected(range(20))
    log.close()
    before = [path.stat().st_ino for path in paths]
    open_log(tmp_path).close()
    assert [path.stat().st_ino for path in paths] == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("empty", [0, 10, 20])
def test_segments_that_compaction_left_empty_hide_no_old_ones(
    tmp_path: Path, empty: int, clean: bool
) -> None:
    bases = (0, 10, 20, 30)
    for base in bases:
        put(tmp_path, base, b"" if base == empty else plain(1, *range(base, base + 10)))
    log = open_log(tmp_path, LogConfig(cleanup_policy=frozenset({"compact"})), clean=clean)
    kept = [base for base in bases if base != empty]
    assert [offset for offset, _ in contents(log)] == [base + n for base in kept for n in range(10)]
    log.close()


def records_of_from(log: Log, offset: int) -> list[Record]:
    return read_records(log.read_bytes(offset, 1 << 24))


def test_the_time_of_appending_stays_each_messages_own(tmp_path: Path) -> None:
    put(tmp_path, 0, plain(1, 0, 1, attributes=8), wrapper(1, "gzip", 2, 3, append_time=True))
    log = open_log(tmp_path)
    assert [record.timestamp - NOW_MS for record in records_of(log)] == [0, 1, 3, 3]
    headers = list(iter_batches(log.read_bytes(0, 9999)))
    assert [header.is_log_append_time for header in headers] == [True, True, True]


def test_offsets_of_compacted_wrappers_stay(tmp_path: Path) -> None:
    put(tmp_path, 0, wrapper(1, "gzip", 2, 5, 9), wrapper(0, "lz4", 12, 17))
    assert [record.offset for record in records_of(open_log(tmp_path))] == [2, 5, 9, 12, 17]


def test_many_plain_messages_share_batches_of_moderate_size(tmp_path: Path) -> None:
    path = put(tmp_path, 0, plain(1, *range(2000)))
    before = path.stat().st_size
    open_log(tmp_path)
    sizes = [header.size_bytes for header in iter_batches(path.read_bytes())]
    assert max(sizes) <= 17_000
    assert path.stat().st_size < before


def test_a_message_larger_than_a_piece_is_rewritten(tmp_path: Path) -> None:
    large = bytearray(plain(1, 0))
    write_message(large, 1, 1, NOW_MS, None, bytes(3 << 20))
    put(tmp_path, 0, bytes(large), plain(1, 2))
    assert [len(record.value or b"") for record in records_of(open_log(tmp_path))] == [1, 3 << 20, 1]


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def negative_time(offset: int) -> bytes:
    out = bytearray()
    write_message(out, 1, offset, -2, None, b"v")
    return bytes(out)


DAMAGE: dict[str, bytes] = {
    "a wrong checksum": plain(1, 0) + flipped(plain(1, 1), 30),
    "an incomplete message": plain(1, 0, 1)[:-1],
    "an impossible length": plain(1, 0) + bytes(40),
    "a huge length": plain(1, 0) + b"\0" * 8 + b"\x7f\xff\xff\xff" + bytes(40),
    "offsets that fall": plain(1, 5, 3),
    "offsets far apart in a wrapper": wrapper(1, "gzip", 0, 1 << 31),
    "a negative time": plain(1, 0) + negative_time(1),
    "offsets below the segment": plain(1, 0),
    "offsets too far above the segment": plain(1, 0) + plain(1, (1 << 31) + 5),
    "a damaged wrapper before a sound message": flipped(wrapper(1, "gzip", 5, 6), 60) + plain(1, 7),
    "a batch far above the segment": plain(1, 0) + bytes(batch(b"v", base_offset=1 << 40)),
    "half a batch": plain(1, 0) + bytes(batch(b"v", base_offset=1))[:-1],
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_refused_and_the_file_is_as_it_was(tmp_path: Path, data: bytes, clean: bool) -> None:
    path = put(tmp_path, 1 if data == DAMAGE["offsets below the segment"] else 0, data)
    with pytest.raises(LogDirError, match="damaged at byte"):
        open_log(tmp_path, clean=clean)
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.cleaned"))


@pytest.mark.parametrize("clean", [True, False])
def test_damage_at_the_beginning_of_a_later_old_segment_is_refused(tmp_path: Path, clean: bool) -> None:
    put(tmp_path, 0, plain(1, 0, 1))
    path = put(tmp_path, 2, flipped(plain(1, 2), 30), plain(1, 3))
    data = path.read_bytes()
    with pytest.raises(LogDirError, match="damaged at byte"):
        open_log(tmp_path, clean=clean)
    assert path.read_bytes() == data


@pytest.mark.parametrize("size", [5, 61, 5000])
def test_zeros_are_no_old_messages(tmp_path: Path, size: int) -> None:
    """A loss of power may leave them."""
    put(tmp_path, 0, bytes(size))
    assert open_log(tmp_path, clean=False).log_end_offset == 0


def crash_at(step_number: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads the log up to a crash at a rename or a sync of its directory: what would happen after it is lost."""
    left = step_number

    class Crash(BaseException):
        pass

    def crashing(real: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object) -> object:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return real(*args)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(old_segments, "sync_dir", crashing(sync_dir))
        patched.setattr(Path, "rename", crashing(Path.rename))
        patched.setattr(Path, "unlink", lambda *_args, **_options: None)
        with pytest.raises(Crash):
            open_log(directory)


@pytest.mark.parametrize("stop_at", range(16))
def test_after_a_crash_at_any_step_the_log_is_loaded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    for base in (0, 10):
        put(tmp_path, base, plain(1, *range(base, base + 10)))
    crash_at(stop_at, tmp_path, monkeypatch)
    log = open_log(tmp_path, LogConfig())
    assert [offset for offset, _ in contents(log)] == list(range(20))
    assert not [name for name in os.listdir(log.dir) if name.endswith((".swap", ".cleaned"))]  # noqa: PTH208


@pytest.mark.parametrize("stop_at", range(10))
def test_after_a_crash_at_any_step_aborted_transactions_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    source = open_log(tmp_path / "source")
    source.append_as_follower(batch(b"in its place come old messages", base_offset=0, leader_epoch=0))
    begin = source.segments[0].size
    write(source, b"aborted", pid=7)
    end(source, ABORT, 7)
    source.flush()
    source.close()
    newer = source.segments[0].path(".log").read_bytes()[begin:]
    path = put(tmp_path, 0, plain(1, 0), newer)
    index = source.segments[0].path(".txnindex").read_bytes()
    path.with_suffix(".txnindex").write_bytes(index)
    crash_at(stop_at, tmp_path, monkeypatch)
    log = open_log(tmp_path)
    log.high_watermark = log.log_end_offset
    assert [record.offset for record in read_committed(log)] == [0]
    assert path.with_suffix(".txnindex").read_bytes() == index


@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_takes_old_messages_as_batches(tmp_path: Path, magic: int) -> None:
    log = open_log(tmp_path)
    sent = plain(magic, 0, 1) + wrapper(magic, "gzip", 2, 3) + plain(magic, 4, 7)
    info = log.append_as_follower(memoryview(sent + plain(magic, 8)[:-3]), 5)
    assert (info.first_offset, info.last_offset) == (0, 7)
    assert records_of(log) == expected([0, 1, 2, 3, 4, 7], magic)
    log.append_as_follower(memoryview(plain(magic, 8)), 5)
    assert log.log_end_offset == 9


def test_a_follower_takes_old_messages_and_the_batches_behind_them(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    behind = bytes(batch(b"new", base_offset=2, leader_epoch=4))
    log.append_as_follower(memoryview(plain(1, 0, 1) + behind + behind[:-1]), 5)
    assert contents(log) == [(0, b"0"), (1, b"1"), (2, b"new")]
    assert log.leader_epochs.entries[-1] == (4, 2)


@pytest.mark.parametrize(
    "damaged",
    [flipped(plain(1, 2), 30), flipped(wrapper(1, "gzip", 2, 3), 60)],
    ids=["a message", "a wrapper"],
)
def test_a_follower_takes_what_comes_before_damage(tmp_path: Path, damaged: bytes) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(memoryview(plain(1, 0, 1) + damaged), 5)
    assert log.log_end_offset == 2


def test_a_follower_refuses_damaged_old_messages(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sent in (flipped(plain(1, 0), 30), plain(1, 0)[:-1], flipped(wrapper(1, "gzip", 0, 1), 60)):
        with pytest.raises(KafkaError) as refused:
            log.append_as_follower(memoryview(sent), 5)
        assert refused.value.error_code is Errors.CORRUPT_MESSAGE
    assert log.log_end_offset == 0
