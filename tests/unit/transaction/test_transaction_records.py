"""The records of __transaction_state are Kafka's, byte for byte, and Kafka's own are read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.transaction.loader import TransactionReplay
from broker.coordinator.transaction.records import (
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker.coordinator.transaction.states import TransactionState
from broker.record.batch import read_records
from tests.support.kafka_log_dirs import logs_of

EMPTY = TransactionRecord(7, 2, 60_000, TransactionState.Empty, {}, 99, -1)
ONGOING = EMPTY._replace(state=TransactionState.Ongoing, partitions={"ab": frozenset({3})}, start_ms=98)
HEAD = struct.pack(">qhi", 7, 2, 60_000)


def test_a_key_is_kafkas() -> None:
    assert encode_key("tx") == b"\0\0\0\2tx"
    assert decode_key(b"\0\0\0\2tx") == "tx"
    with pytest.raises(MalformedRecord, match="unknown key version 1"):
        decode_key(b"\0\1\0\2tx")


def test_values_are_kafkas_version_0() -> None:
    assert encode_value(EMPTY) == b"\0\0" + HEAD + b"\0" + struct.pack(">iqq", -1, 99, -1)
    partitions = struct.pack(">ih", 1, 2) + b"ab" + struct.pack(">ii", 1, 3)
    assert encode_value(ONGOING) == b"\0\0" + HEAD + b"\1" + partitions + struct.pack(">qq", 99, 98)
    complete = EMPTY._replace(state=TransactionState.CompleteCommit)
    assert encode_value(complete) == b"\0\0" + HEAD + b"\4" + struct.pack(">iqq", 0, 99, -1)


@pytest.mark.parametrize("record", [EMPTY, ONGOING])
def test_values_survive_the_round_trip(record: TransactionRecord) -> None:
    assert decode_value(encode_value(record)) == record


def test_version_1_is_read_with_tags_of_later_releases() -> None:
    tags = b"\1\0\4more"
    partitions = b"\2" + b"\3ab" + b"\2" + struct.pack(">i", 3) + tags
    encoded = b"\0\1" + HEAD + b"\1" + partitions + struct.pack(">qq", 99, 98) + tags
    assert decode_value(encoded) == ONGOING


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0\2" + HEAD,
        b"\0\0" + HEAD,
        b"\0\0" + HEAD + b"\6" + struct.pack(">iqq", 0, 1, 1),
        b"\0\0" + HEAD + b"\7" + struct.pack(">iqq", 0, 1, 1),
        b"\0\0" + HEAD + b"\1" + struct.pack(">i", 1 << 30),
        encode_value(ONGOING)[:-1],
    ],
)
def test_what_is_no_transaction_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_value(value)


@pytest.fixture(scope="module")
def kafka_logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return logs_of("__transaction_state", tmp_path_factory.mktemp("kafka"))


def test_kafkas_own_records_are_read_and_written_again_as_they_were(kafka_logs: list[Path]) -> None:
    states = set()
    for path in kafka_logs:
        for record in read_records(path.read_bytes()):
            assert record.key is not None
            assert record.value is not None
            assert encode_key(decode_key(record.key)) == record.key
            value = decode_value(record.value)
            states.add(value.state.name)
            again = encode_value(value)
            # Kafka writes a set of partitions in any order.
            assert decode_value(again) == value
            assert sorted(again) == sorted(record.value)
            if sum(map(len, value.partitions.values())) < 2:
                assert again == record.value
    assert states == {"Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"}


def test_kafkas_own_logs_are_loaded_without_a_record_skipped(kafka_logs: list[Path]) -> None:
    loaded: dict[str, TransactionRecord] = {}
    for path in kafka_logs:
        replay = TransactionReplay()
        replay.feed(memoryview(path.read_bytes()))
        assert replay.first_skipped is None, path
        loaded |= replay.transactions
    assert loaded["ab"].state is TransactionState.CompleteAbort
    assert (loaded["tx1"].producer_epoch, loaded["tx1"].state) == (1, TransactionState.CompleteCommit)
