"""How far a client's batch is looked into, on which thread, and what is answered to one that lies."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch, read_records
from broker.record.compression import CODEC_NAMES
from broker.record.header import crc_is_valid, read_header
from broker.record.inspection import (
    INLINE_INSIDE_BYTES,
    INLINE_PACKED_BYTES,
    INLINE_RECORDS,
    Depth,
    inspect,
)
from broker.record.records import LONG_MAX, first_timestamp, is_usual, walk
from broker.record.validator import MOST_RECORDS, BatchRules
from tests.support.lying_batches import LIES, PLAIN, TIMESTAMP, Lie, batch, record, resealed

RULES = BatchRules(max_message_bytes=1 << 20)
PACKERS = CODEC_NAMES[1:]


def look(data, depth=Depth.FIRST, *, rules=RULES, inline=False):
    """Whether the batch was done with; its bytes are changed in place."""
    view = data if isinstance(data, memoryview) else memoryview(bytearray(data))
    return inspect(view, depth, rules, "t-0", inline=inline)


def refusal(data, depth=Depth.FIRST, *, rules=RULES, inline=False) -> Errors:
    with pytest.raises(KafkaError) as raised:
        look(data, depth, rules=rules, inline=inline)
    assert "t-0" in str(raised.value)
    return raised.value.error_code


def records(count, *, value=b"value", step_ms=1):
    return [Record(b"key", value, (("h", b"x"),), TIMESTAMP + step_ms * n) for n in range(count)]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_look_at_all_records_finds_every_lie(lie: Lie):
    assert refusal(lie.make(), Depth.ALL) is lie.answer


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_the_default_look_finds_what_shows_at_the_first_record(lie: Lie):
    if lie.at_first:
        assert refusal(lie.make()) is lie.answer
    else:
        assert look(lie.make())


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_the_network_thread_refuses_a_lie_or_leaves_it_to_a_handler(lie: Lie):
    if lie in PLAIN.values() and lie.at_first:
        assert refusal(lie.make(), inline=True) is lie.answer
    elif lie is not LIES["2^31 - 1 records in zstd"]:
        assert look(lie.make(), inline=True) is not lie.at_first


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_broker_that_trusts_its_clients_looks_at_nothing(lie: Lie):
    assert look(lie.make(), Depth.NONE, inline=True)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_the_network_has_spoiled_is_left_to_the_checksum(lie: Lie):
    data = bytearray(lie.make())
    data[20] ^= 1
    assert look(data, Depth.ALL)


@pytest.mark.parametrize("depth", [Depth.FIRST, Depth.ALL])
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("count", [1, 2, INLINE_RECORDS])
def test_sound_batches_pass_unchanged(codec, count, inline, depth):
    data = build_batch(records(count), compression=codec)
    view = memoryview(bytearray(data))
    assert look(view, depth, inline=inline)
    assert bytes(view) == data


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_encoder_makes_passes(seed):
    rng = random.Random(seed)
    made = [
        Record(
            rng.choice([None, b"", rng.randbytes(rng.randrange(300))]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(9000))]),
            tuple((f"h{n}", rng.choice([None, b"", b"x" * 90])) for n in range(rng.randrange(4))),
            rng.choice([TIMESTAMP + rng.randrange(-(10**6), 10**6), 0]),
        )
        for _ in range(rng.randrange(1, 200))
    ]
    data = build_batch(made, compression=rng.choice(CODEC_NAMES))
    view = memoryview(bytearray(data))
    assert look(view, Depth.ALL)
    assert bytes(view) == data


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_a_highest_timestamp_that_no_record_has_is_set_right(codec):
    lie = batch(record(timestamp_delta=7) + record(1, timestamp_delta=3), 2, codec=codec)
    view = memoryview(bytearray(lie))
    assert look(view, inline=True)  # the first record shows it
    header = read_header(view)
    assert header.max_timestamp == TIMESTAMP + 7
    assert crc_is_valid(view, header)
    assert [found.timestamp for found in read_records(view)] == [TIMESTAMP + 7, TIMESTAMP + 3]


def test_a_highest_timestamp_that_only_later_records_deny_is_found_by_the_whole_look():
    lie = batch(record() + record(1, timestamp_delta=9), 2)
    view = memoryview(bytearray(lie))
    assert look(view)
    assert read_header(view).max_timestamp == TIMESTAMP
    assert look(view, Depth.ALL)
    assert read_header(view).max_timestamp == TIMESTAMP + 9


def test_a_checksum_that_is_wrong_stays_wrong():
    data = bytearray(batch(record(timestamp_delta=7), 1))
    data[20] ^= 1
    view = memoryview(data)
    assert look(view)
    assert not crc_is_valid(view, read_header(view))


@pytest.mark.parametrize("delta", [LONG_MAX, -LONG_MAX])
def test_a_timestamp_out_of_all_range_is_refused(delta):
    base = bytearray(batch(record(timestamp_delta=delta), 1))
    base[27:35] = (TIMESTAMP if delta > 0 else -TIMESTAMP).to_bytes(8, "big", signed=True)
    assert refusal(resealed(base)) is Errors.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKERS)
def test_much_that_is_packed_is_not_for_the_network_thread(codec):
    rng = random.Random(1)
    data = build_batch(records(2, value=rng.randbytes(INLINE_PACKED_BYTES)), compression=codec)
    assert not look(data, inline=True)
    assert look(data)


@pytest.mark.parametrize("codec", PACKERS)
def test_little_that_becomes_much_is_not_for_the_network_thread(codec):
    data = build_batch(records(2, value=bytes(INLINE_INSIDE_BYTES)), compression=codec)
    assert len(data) < INLINE_PACKED_BYTES
    assert not look(data, inline=True)
    assert look(data)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_many_records_are_walked_by_a_handler(codec):
    data = build_batch(records(INLINE_RECORDS + 1), compression=codec)
    assert look(data, inline=True)
    assert not look(data, Depth.ALL, inline=True)
    assert look(data, Depth.ALL)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("codec", PACKERS)
def test_a_bomb_is_refused_as_too_large_and_never_held(codec, count):
    rules = BatchRules(max_message_bytes=8 << 20)
    bomb = build_batch(records(count, value=bytes((80 << 20) // count)), compression=codec)
    tracemalloc.start()
    try:
        assert refusal(bomb, rules=rules) is Errors.MESSAGE_TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20


def test_a_snappy_block_is_not_believed_what_it_claims_to_hold():
    claim = b"\xff\xff\xff\x7f" + b"abc" * 20
    assert refusal(batch(b"", 1, codec="snappy", packed=claim)) is Errors.INVALID_RECORD


def test_more_records_than_a_thread_has_time_for_are_too_large():
    lie = batch(record(), MOST_RECORDS + 1, codec="gzip")
    assert refusal(lie) is Errors.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "rules",
    [
        BatchRules(1 << 20, keys_required=True),
        BatchRules(1 << 20, before_max_ms=5),
        BatchRules(1 << 20, target_codec=1),
    ],
    ids=["keys", "time bound", "codec"],
)
def test_what_the_config_has_walked_anyway_is_not_looked_at_twice(rules):
    assert look(batch(b"\xff" * 64, 3), Depth.ALL, rules=rules)


@pytest.mark.parametrize(
    "data",
    [b"", bytes(60), bytes(200), batch(record(), 1)[:-1], batch(record(), 1) + b"x"],
    ids=["nothing", "zeros", "more zeros", "cut off", "a byte too many"],
)
def test_what_the_header_shows_is_left_to_the_validator(data):
    assert look(data, Depth.ALL)


@pytest.mark.parametrize("seed", range(40))
def test_the_short_look_at_a_first_record_says_no_more_than_the_long_one(seed):
    """Bytes of usual records, some of them changed or cut off: whatever is called usual passes the long look."""
    rng = random.Random(seed)
    usual = alone = 0
    for _ in range(300):
        key = rng.choice([None, b"", rng.randbytes(rng.randrange(70))])
        value = rng.choice([None, b"", rng.randbytes(rng.choice([3, 70, 700, 9000]))])
        data = bytearray(record(key=key, value=value) + bytes(rng.randrange(3)))
        for _ in range(rng.choice([0, 0, 1, 2])):
            data[rng.randrange(min(len(data), 10))] = rng.choice(
                [0, 1, 2, 127, 128, 129, 255, rng.randrange(256)]
            )
        del data[rng.choice([len(data), rng.randrange(1, len(data))]) :]
        if is_usual(data, 0):
            usual += 1
            assert first_timestamp(data, len(data), TIMESTAMP) == TIMESTAMP
        if is_usual(data, 0, alone=True):
            alone += 1
            assert walk(data, 1, TIMESTAMP).latest_timestamp == TIMESTAMP
    assert usual > 50
    assert 20 < alone < usual


def test_a_single_record_before_all_time_is_looked_at_closely():
    """As in Kafka, a record without a timestamp has -1; one that is earlier does not count, or is refused."""
    header = bytearray(batch(record(), 1))

    def at(stamp: int) -> bytearray:
        struct.pack_into(">qq", header, 27, stamp, stamp)
        return bytearray(resealed(header))

    assert refusal(at(-(1 << 63))) is Errors.INVALID_RECORD
    for stamp in (-5, -1):
        data = at(stamp)
        assert look(memoryview(data))
        assert read_header(data).max_timestamp == -1
