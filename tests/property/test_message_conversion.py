"""Old messages and record batches: drawn records survive both conversions, and drawn bytes do no harm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch, read_header, read_records
from broker.record.conversion import down_converted, up_converted
from broker.record.message_set import each_inner, each_message, wrapped, write_message
from broker.record.validator import AppendOrigin, BatchRules, check_batches
from tests.support.times import NOW_MS

RULES = BatchRules(max_message_bytes=1 << 20)
CODECS = ("none", "gzip", "snappy", "lz4")
REFUSALS = {
    Errors.CORRUPT_MESSAGE,
    Errors.INVALID_RECORD,
    Errors.INVALID_TIMESTAMP,
    Errors.MESSAGE_TOO_LARGE,
    Errors.UNSUPPORTED_COMPRESSION_TYPE,
}
nullable = st.none() | st.binary(max_size=200)
times = st.integers(-1, 2**62)
headers = st.lists(st.tuples(st.text(max_size=4), nullable), max_size=2).map(tuple)
drawn_records = st.lists(
    st.builds(Record, nullable, nullable, headers, times, st.just(0)), min_size=1, max_size=12
)
magics = st.sampled_from([0, 1])


@given(drawn_records, st.sampled_from(CODECS), magics, st.integers(0, 2**40))
def test_records_survive_the_way_to_old_messages_and_back(
    records: list[Record], codec: str, magic: int, base_offset: int
) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    old, next_offset = down_converted(
        memoryview(batch), read_header(batch), magic, first_offset=base_offset, most_bytes=1 << 30
    )
    assert next_offset == base_offset + len(records)
    offsets = []
    for message in each_message(memoryview(old)):
        if not message.codec_id:
            offsets.append(message.offset)
            continue
        inner = [each.offset for each in each_inner(message, 1 << 20)]
        offsets += [each + message.offset - inner[-1] if magic else each for each in inner]
    assert offsets == list(range(base_offset, base_offset + len(records)))
    converted = up_converted(memoryview(old), RULES)
    assert converted is not None
    check_batches(memoryview(bytearray(converted)), RULES, AppendOrigin.CLIENT, NOW_MS, "t-0")
    kept = [record._replace(headers=(), timestamp=record.timestamp if magic else -1) for record in records]
    assert [record._replace(offset=0) for record in read_records(converted)] == kept


@given(drawn_records, magics, st.integers(0, 12), st.integers(0, 1500))
def test_a_reader_that_goes_on_after_each_answer_gets_every_record_once(
    records: list[Record], magic: int, start: int, most_bytes: int
) -> None:
    batch = build_batch(records)
    offset = start
    values = []
    while offset < len(records):
        old, next_offset = down_converted(
            memoryview(batch), read_header(batch), magic, first_offset=offset, most_bytes=most_bytes
        )
        found = list(each_message(memoryview(old)))
        assert len(found) == 1 or len(old) <= most_bytes
        values += [each.value if each.value is None else bytes(each.value) for each in found]
        assert found[0].offset == offset
        offset = found[-1].offset + 1
        assert next_offset == offset
    assert values == [record.value for record in records[start:]]


def _wrapper(inside: bytes, magic: int, codec: int) -> bytes:
    return wrapped(inside, magic, codec, 0, NOW_MS, append_time=False)


def _sealed(body: bytes, magic: int, attributes: int) -> bytes:
    out = bytearray()
    write_message(out, magic, 0, NOW_MS, None, body, attributes)
    return bytes(out)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Messages that are random, or changed, or that have random bytes behind a right checksum."""
    inside = draw(
        st.binary(max_size=120)
        | st.builds(_sealed, st.binary(max_size=60), magics, st.integers(0, 127))
        | st.builds(_sealed, st.binary(max_size=60), magics, st.just(0)).map(lambda data: data * 3)
    )
    data = bytearray(draw(st.just(inside) | st.builds(_wrapper, st.just(inside), magics, st.integers(1, 3))))
    for _ in range(draw(st.integers(0, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def _refusal(work: Callable[[], object]) -> Errors | None:
    try:
        work()
    except KafkaError as refusal:
        return refusal.error_code
    return None


@given(hostile())
@example(b"")
def test_bytes_of_any_kind_become_a_valid_batch_or_a_refusal(data: bytes) -> None:
    refusal = _refusal(lambda: up_converted(memoryview(data), RULES))
    assert refusal is None or refusal in REFUSALS
    converted = None if refusal else up_converted(memoryview(data), RULES)
    if converted is not None:
        batch = memoryview(bytearray(converted))
        # The time type is judged by the topic's rules.
        assert _refusal(lambda: check_batches(batch, RULES, AppendOrigin.CLIENT, NOW_MS, "t-0")) in {
            None,
            Errors.INVALID_TIMESTAMP,
        }
        read_records(converted)


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_a_changed_bit_in_a_message_is_found(magic: int, data: st.DataObject) -> None:
    whole = bytearray(_sealed(b"value", magic, 0))
    whole[data.draw(st.integers(12, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(KafkaError):
        up_converted(memoryview(whole), RULES)
