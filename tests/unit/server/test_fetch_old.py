"""What Fetch 0 to 3 reads of a log: messages of an old magic, in no more bytes than the reader asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.config.log_config import LogConfig
from broker.log.log import Log
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fetch_messages import FetchedPartition
from broker.record.batch import Record, assemble, build_batch, read_header, records_body
from broker.record.message_set import Message, each_inner, each_message
from broker.replication.delayed_fetch import FetchEntry
from broker.server.apis.fetch_old import for_older_readers, read_converted
from broker.server.passed_over import PassedOver
from broker.utils.topic_partition import TopicPartition
from tests.support.logs import open_log
from tests.support.times import NOW_MS
from tests.support.transactions import COMMIT, end, write

MESSAGE_BYTES = 34 + 100  # of magic 1, with a value of 100 bytes and no key


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path)


def append(log: Log, count: int, compression: str = "none", value: bytes = bytes(100)) -> None:
    records = [Record(None, value, (), NOW_MS)] * count
    log.append_as_leader(memoryview(bytearray(build_batch(records, compression=compression))), 0)


def append_transaction(log: Log, producer_id: int) -> None:
    """A transaction of one record, and its marker."""
    write(log, b"in a transaction", pid=producer_id)
    end(log, COMMIT, producer_id)


def read(
    log: Log,
    offset: int = 0,
    *,
    magic: int = 1,
    most_bytes: int = 1 << 20,
    at_least_one: bool = True,
    whole_batch: bool = False,
) -> bytes:
    return read_converted(
        log,
        offset,
        log.log_end_offset,
        magic=magic,
        most_bytes=most_bytes,
        at_least_one=at_least_one,
        whole_batch=whole_batch,
    ).messages


def offsets(data: bytes) -> list[int]:
    return [offset for message in each_message(memoryview(data)) for offset in _offsets_in(message)]


def _offsets_in(message: Message) -> Iterator[int]:
    if not message.codec_id:
        yield message.offset
        return
    inner = [each.offset for each in each_inner(message, 1 << 20)]
    yield from (each + message.offset - inner[-1] if message.magic else each for each in inner)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_a_reader_gets_every_record_from_its_offset_on(log: Log, compression: str, magic: int) -> None:
    for _ in range(5):
        append(log, 3, compression)
    found = offsets(read(log, 6, magic=magic))
    assert found == list(range(6, 15))


def test_a_reader_in_the_middle_of_a_batch_gets_the_rest_of_it_or_all_if_it_is_compressed(log: Log) -> None:
    append(log, 5)
    append(log, 5, "gzip")
    assert offsets(read(log, 3)) == [3, 4, 5, 6, 7, 8, 9]
    assert offsets(read(log, 7)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("limit", range(0, 12 * MESSAGE_BYTES, 50))
def test_no_more_comes_than_was_asked_for_but_the_first_message(log: Log, limit: int) -> None:
    for _ in range(4):
        append(log, 3)
    data = read(log, 1, most_bytes=limit)
    whole = limit // MESSAGE_BYTES
    assert offsets(data) == list(range(1, 1 + max(1, min(whole, 11))))
    assert not whole or len(data) <= limit
    strict = read(log, 1, most_bytes=limit, at_least_one=False)
    assert offsets(strict) == list(range(1, 1 + min(whole, 11)))


@pytest.mark.parametrize("limit", [0, 1, 2 * MESSAGE_BYTES, 3 * MESSAGE_BYTES, 4 * MESSAGE_BYTES])
def test_the_first_batch_may_come_whole_however_low_the_limit_is(log: Log, limit: int) -> None:
    for _ in range(2):
        append(log, 3)
    assert offsets(read(log, 1, most_bytes=limit, whole_batch=True)) == list(
        range(1, 1 + max(2, limit // MESSAGE_BYTES))
    )


def test_a_reader_that_goes_on_where_it_stopped_gets_every_record_once(log: Log) -> None:
    for count in (1, 40, 3, 200, 7):
        append(log, count)
        append(log, count, "lz4")
    found: list[int] = []
    while (offset := found[-1] + 1 if found else 0) < log.log_end_offset:
        found += [each for each in offsets(read(log, offset, most_bytes=1000)) if each >= offset]
    assert found == list(range(log.log_end_offset))


def test_a_compressed_batch_comes_whole_or_not_at_all(log: Log) -> None:
    append(log, 20, "gzip")
    append(log, 20, "gzip")
    size = len(read(log, 20))
    assert offsets(read(log, most_bytes=1)) == list(range(20))
    assert offsets(read(log, most_bytes=size + size // 2)) == list(range(20))
    assert read(log, most_bytes=size - 50, at_least_one=False) == b""


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_reader_behind_the_last_record_of_a_compacted_batch_gets_what_follows(
    log: Log, compression: str
) -> None:
    """The batch still reaches to offset 9, and its reader would otherwise get it again and again."""
    batch = build_batch([Record(None, bytes(100), (), NOW_MS)] * 5, compression=compression, leader_epoch=0)
    header = read_header(batch)._replace(last_offset_delta=9)
    log.append_as_follower(memoryview(assemble(header, records_body(memoryview(batch), header))))
    append(log, 1)
    assert offsets(read(log, 5, most_bytes=1)) == [10]


def test_transaction_markers_are_passed_over(log: Log) -> None:
    for producer_id in range(1, 4):
        append_transaction(log, producer_id)
    assert offsets(read(log)) == [0, 2, 4]
    assert offsets(read(log, 1)) == [2, 4]
    assert read(log, 5) == b""


def test_markers_that_fill_more_than_the_limit_do_not_hold_a_reader_up(log: Log) -> None:
    append(log, 1)
    for producer_id in range(1, 40):
        append_transaction(log, producer_id)
    assert offsets(read(log, 1, most_bytes=1)) == [1]
    assert offsets(read(log, 2, most_bytes=1)) == [3]


def read_on(log: Log, passed: PassedOver, offset: int, *, magic: int = 1) -> list[int]:
    """The offsets that a request gets which gives up after 500 bytes without a record."""
    found = read_converted(
        log,
        offset,
        log.log_end_offset,
        magic=magic,
        most_bytes=1 << 20,
        at_least_one=True,
        begin=passed.begin(log, offset),
        most_skipped=500,
    )
    passed.note(log, offset, log.generation, found.next_offset)
    return offsets(found.messages)


def with_many_markers(log: Log, *, last: int) -> None:
    """A record at 0, many markers, and a record at ``last``."""
    append(log, 1)
    while log.log_end_offset < last:
        end(log, COMMIT, 1)
    append(log, 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_reader_comes_past_more_markers_than_one_request_searches(log: Log, magic: int) -> None:
    passed = PassedOver()
    with_many_markers(log, last=6_000)
    assert read_on(log, passed, 0, magic=magic) == [0]
    answers = [read_on(log, passed, 1, magic=magic) for _ in range(6)]
    assert answers == [[], [], [], [6_000], [6_000], [6_000]]


def test_what_was_searched_counts_only_for_the_log_as_it_was(log: Log, tmp_path: Path) -> None:
    passed = PassedOver()
    with_many_markers(log, last=3_000)
    assert read_on(log, passed, 1) == []
    assert passed.begin(log, 1) > 1_000
    log.truncate_to(500)
    assert passed.begin(log, 1) == 1
    append(log, 1)
    assert read_on(log, passed, 1) == [500]
    other = open_log(tmp_path / "other")
    with_many_markers(other, last=2)
    assert read_on(other, passed, 1) == [2]


def test_no_more_is_remembered_of_searches_than_fits(log: Log) -> None:
    passed = PassedOver()
    for offset in range(2_000):
        passed.note(log, offset, log.generation, offset + 1)
    assert [passed.begin(log, offset) for offset in (0, 999, 1_000, 1_999)] == [0, 999, 1_001, 2_000]


def test_nothing_comes_from_the_end_offset_on(log: Log) -> None:
    append(log, 2)
    append(log, 2)
    limited = read_converted(log, 0, 2, magic=1, most_bytes=1 << 20, at_least_one=True)
    assert offsets(limited.messages) == [0, 1]
    assert read(log, 4) == b""


def refusal(work: Callable[[], object]) -> Errors:
    with pytest.raises(KafkaError) as refused:
        work()
    return refused.value.error_code


def test_zstd_is_an_error_once_nothing_comes_before_it(log: Log) -> None:
    append(log, 2)
    append(log, 2, "zstd")
    assert offsets(read(log)) == [0, 1]
    assert refusal(lambda: read(log, 2)) is Errors.UNSUPPORTED_COMPRESSION_TYPE


def test_a_damaged_batch_is_an_error_once_nothing_comes_before_it(log: Log, tmp_path: Path) -> None:
    append(log, 2)
    append(log, 2)
    (path,) = tmp_path.rglob("*.log")
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    assert offsets(read(log)) == [0, 1]
    assert refusal(lambda: read(log, 2)) is Errors.CORRUPT_MESSAGE


def told(error: Errors, version: int, compression_type: str = "producer") -> Errors:
    """What a reader is told about a partition of a topic with this ``compression.type``."""
    topic = SimpleNamespace(config=LogConfig(compression_type=compression_type))
    context = SimpleNamespace(replica_manager=SimpleNamespace(local_log=lambda _partition: topic))
    entry = FetchEntry(TopicPartition("t", 0), ZERO_UUID, 0, 1)
    ((_, result),) = for_older_readers([(entry, FetchedPartition(0, error))], version, context)  # type: ignore[arg-type]
    return result.error


def test_a_reader_that_may_not_know_storage_errors_looks_for_another_leader() -> None:
    errors = [told(Errors.KAFKA_STORAGE_ERROR, version) for version in range(10)]
    assert errors == [Errors.NOT_LEADER_OR_FOLLOWER] * 6 + [Errors.KAFKA_STORAGE_ERROR] * 4


def test_only_those_who_may_read_a_topic_are_told_that_it_is_compressed_with_zstd() -> None:
    assert told(Errors.NONE, 9, "zstd") is Errors.UNSUPPORTED_COMPRESSION_TYPE
    assert told(Errors.TOPIC_AUTHORIZATION_FAILED, 9, "zstd") is Errors.TOPIC_AUTHORIZATION_FAILED


def test_an_offset_outside_the_log_is_an_error(log: Log) -> None:
    append(log, 2)
    late = refusal(lambda: read_converted(log, 3, 9, magic=1, most_bytes=9, at_least_one=True))
    assert late is Errors.OFFSET_OUT_OF_RANGE
