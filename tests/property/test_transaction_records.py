"""Records of __transaction_state: any value survives the round trip, and no bytes do harm."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.transaction.loader import TransactionReplay
from broker.coordinator.transaction.records import (
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker.coordinator.transaction.states import STORED, TransactionState
from broker.record.batch import Record, build_batch

texts = st.text(st.characters(codec="utf-8"), max_size=40)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
begun = st.builds(
    TransactionRecord,
    int64,
    st.integers(-1, 0x7FFF),
    int32,
    st.sampled_from(sorted(STORED - {TransactionState.Empty})),
    st.dictionaries(texts, st.frozensets(int32, max_size=5), max_size=4),
    int64,
    int64,
)
records = begun | begun.map(lambda record: record._replace(state=TransactionState.Empty, partitions={}))


@given(texts, records)
def test_records_survive_the_round_trip(transactional_id: str, record: TransactionRecord) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id
    assert decode_value(encode_value(record)) == record


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        with contextlib.suppress(MalformedRecord):
            decode(data)


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60)), min_size=1)
)
def test_replay_of_arbitrary_records_takes_or_skips_each(
    rows: list[tuple[bytes | None, bytes | None]],
) -> None:
    batch = build_batch([Record(key, value, timestamp=0) for key, value in rows], base_offset=100)
    assert TransactionReplay().feed(memoryview(batch)) == 100 + len(rows)
