"""What a leader accepts from whom, and with which error it refuses the rest."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from broker.record.validator import AppendOrigin, BatchRules, check_batches
from tests.support.logs import batch

NOW = 1_000_000
RULES = BatchRules(max_message_bytes=10_000)


def check(view, rules=RULES, origin=AppendOrigin.CLIENT):
    return check_batches(view, rules, origin, NOW, "t-0")


def refused(view, rules=RULES, origin=AppendOrigin.CLIENT) -> Errors:
    with pytest.raises(KafkaError) as raised:
        check(view, rules, origin)
    assert "t-0" in str(raised.value)
    return raised.value.error_code


def with_field(view, position, layout, value, *, fix_crc=True):
    struct.pack_into(layout, view, position, value)
    if fix_crc:
        struct.pack_into(">I", view, 17, crc32c(view[21:]))
    return view


def test_a_sound_batch_is_accepted_and_its_header_returned():
    (header,) = check(batch(b"a", b"b"))
    assert header.record_count == 2


def test_several_sound_batches_are_accepted():
    data = memoryview(bytearray(bytes(batch(b"a")) + bytes(batch(b"b", b"c"))))
    assert [header.record_count for header in check(data)] == [1, 2]


def test_no_batch_at_all_is_refused():
    assert refused(memoryview(bytearray())) is Errors.INVALID_RECORD


@pytest.mark.parametrize("size", [1, 12, 60])
def test_fewer_bytes_than_a_header_are_refused(size):
    assert refused(batch(b"a")[:size]) is Errors.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 48, 5000, (1 << 31) - 1])
def test_a_claimed_length_that_is_not_there_is_refused(length):
    assert refused(with_field(batch(b"a"), 8, ">i", length, fix_crc=False)) is Errors.CORRUPT_MESSAGE


def test_a_wrong_checksum_is_refused():
    view = batch(b"abc")
    view[-2] ^= 1
    assert refused(view) is Errors.CORRUPT_MESSAGE


@pytest.mark.parametrize(("magic", "code"), [(0, 87), (1, 87), (3, 2), (-1, 2)])
def test_other_magics_are_refused(magic, code):
    assert refused(with_field(batch(b"a"), 16, ">b", magic, fix_crc=False)) == code


def test_a_batch_over_max_message_bytes_is_refused_naming_the_config():
    with pytest.raises(KafkaError, match=r"max\.message\.bytes=10000") as raised:
        check(batch(bytes(10_000)))
    assert raised.value.error_code is Errors.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec):
    assert refused(with_field(batch(b"a"), 21, ">h", codec)) is Errors.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [
        (0, ">q", 5),  # base offset
        (57, ">i", 0),  # no records
        (57, ">i", -1),
        (57, ">i", 3),  # count and last offset delta differ
        (23, ">i", -1),
        (21, ">h", 0x20),  # control
        (43, ">q", 9),  # producer without sequence and epoch
    ],
)
def test_a_clients_batch_that_contradicts_itself_is_refused(position, layout, value):
    assert refused(with_field(batch(b"a", b"b"), position, layout, value)) is Errors.INVALID_RECORD


def test_more_records_than_the_bytes_can_hold_are_refused():
    view = with_field(batch(b"a"), 57, ">i", 1 << 30)
    assert refused(with_field(view, 23, ">i", (1 << 30) - 1)) is Errors.INVALID_RECORD


def test_a_transactional_batch_needs_a_producer():
    (header,) = check(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    assert header.is_transactional
    assert refused(batch(b"a", transactional=True)) is Errors.INVALID_RECORD


def test_the_append_time_flag_is_the_brokers_to_set():
    view = with_field(batch(b"a"), 21, ">h", 0x08)
    assert refused(view) is Errors.INVALID_TIMESTAMP
    check(view, BatchRules(10_000, log_append_time=True))


def test_a_timestamp_too_far_ahead_is_refused():
    rules = BatchRules(10_000, after_max_ms=1000)
    check(batch(b"a", timestamp=NOW + 1000), rules)
    assert refused(batch(b"a", timestamp=NOW + 1001), rules) is Errors.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_any_timestamp_too_old_is_refused(codec):
    rules = BatchRules(10_000, before_max_ms=1000)
    records = [Record(None, b"a", (), NOW), Record(None, b"b", (), NOW - 1001)]
    view = memoryview(bytearray(build_batch(records, compression=codec)))
    assert refused(view, rules) is Errors.INVALID_TIMESTAMP
    check(batch(b"a", timestamp=NOW - 1000, compression=codec), rules)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_compacted_topic_wants_keys_of_clients(codec):
    rules = BatchRules(10_000, keys_required=True)
    check(batch(b"a", key=b"", compression=codec), rules)
    assert refused(batch(b"a", compression=codec), rules) is Errors.INVALID_RECORD


def test_a_coordinator_may_write_control_and_transactional_batches():
    marker = build_batch(
        [Record(b"\0\0\0\0", b"\0\0\0\0\0\0", (), 1)],
        control=True,
        transactional=True,
        producer_id=1,
        producer_epoch=0,
    )
    check(memoryview(bytearray(marker)), origin=AppendOrigin.COORDINATOR)
