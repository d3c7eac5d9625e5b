"""Answers are read as the codec reads them, and times below zero too."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch
from tests.differential.plain import NO_ID, plain_answer, plain_batches
from tests.support.filled_messages import filled
from tests.support.times import NOW_MS
from tests.support.valid_requests import ALL_VERSIONS, version_id


def as_plain(value: Any) -> Any:
    """What the codec has decoded, in the other module's terms."""
    if dataclasses.is_dataclass(value):
        return {each.name: as_plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [as_plain(each) for each in value]
    if isinstance(value, timedelta):
        return codec.to_ms(value)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, bytes):
        return value.hex()
    if type(value).__name__ == "ErrorCode":
        return Errors(int(value)).name
    return str(value) if type(value).__name__ == "UUID" else value


@pytest.mark.parametrize("pair", [pair for pair in ALL_VERSIONS if pair[0] != ApiKey.FETCH], ids=version_id)
def test_an_answer_with_all_its_fields_is_read_as_the_codec_reads_it(pair) -> None:
    body = filled(*pair, "response")
    assert plain_answer(*pair, body) == as_plain(codec.decode(*pair, "response", body))


def test_a_time_below_zero_is_a_number() -> None:
    state = {"transactional_id": "t", "transaction_state": "Empty", "topics": []}
    row = {**state, "error_code": 0, "transaction_timeout": 1, "producer_id": 1, "producer_epoch": 0}
    fields = {"transaction_states": [{**row, "transaction_start_time": 1}]}
    body = codec.encode(ApiKey.DESCRIBE_TRANSACTIONS, 0, "response", fields)
    place = body.index((1).to_bytes(8, "big"))
    found = plain_answer(ApiKey.DESCRIBE_TRANSACTIONS, 0, body[:place] + b"\xff" * 8 + body[place + 8 :])
    assert found["transaction_states"][0]["transaction_start_time"] == -1


def test_bytes_that_are_left_over_are_an_error() -> None:
    with pytest.raises(AssertionError, match="1 bytes after"):
        plain_answer(
            ApiKey.HEARTBEAT, 0, codec.encode(ApiKey.HEARTBEAT, 0, "response", {"error_code": 0}) + b"\0"
        )


def test_records_are_read_with_their_headers_but_without_checksums() -> None:
    data = build_batch([Record(b"k", b"v", (), NOW_MS + 5)], base_offset=3, producer_id=9)
    (row,) = plain_batches(data)
    assert row["records"] == [[3, 5, b"k".hex(), b"v".hex(), []]]
    assert (row["base_offset"], row["producer_id"], "crc" in row) == (3, 9, False)


def test_no_id_is_zero() -> None:
    assert set(NO_ID) == {"0", "-"}
