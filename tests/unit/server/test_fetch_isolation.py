"""A Fetch at an isolation level that does not exist is refused before anything is read."""

from __future__ import annotations

import pytest

from broker.network.request_channel import Verdict
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.server.apis import fetch
from tests.unit.server.test_longest_waits import Broker, fetched, requested

_PARTITION = {
    "partition": 3,
    "fetch_offset": 0,
    "partition_max_bytes": 1,
    "current_leader_epoch": -1,
    "log_start_offset": -1,
}


@pytest.mark.parametrize("version", [4, 11])
@pytest.mark.parametrize("level", [-128, -1, 2, 127])
def test_an_unknown_isolation_level_is_refused_for_each_partition(version: int, level: int) -> None:
    broker = Broker()
    asked = {**fetched(0), "isolation_level": level, "topics": [{"topic": "t", "partitions": [_PARTITION]}]}
    request = requested(ApiKey.FETCH, version, asked)
    assert fetch.handle(request, broker) is Verdict.SERVED  # type: ignore[arg-type]
    assert request.payload is not None
    body = b"".join(bytes(piece) for piece in request.payload)[8:]
    answer = codec.decode(ApiKey.FETCH, version, "response", body)
    (row,) = answer.responses[0].partitions
    assert (row.partition_index, row.error_code) == (3, Errors.INVALID_REQUEST)
    assert getattr(answer, "error_code", Errors.INVALID_REQUEST) == Errors.INVALID_REQUEST
    assert not broker.waits


@pytest.mark.parametrize("level", [0, 1])
def test_both_isolation_levels_are_read(level: int) -> None:
    broker = Broker()
    fetch.handle(requested(ApiKey.FETCH, 11, {**fetched(0), "isolation_level": level}), broker)  # type: ignore[arg-type]
    assert broker.waits == [0]
