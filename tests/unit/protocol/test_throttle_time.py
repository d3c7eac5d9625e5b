"""The throttle time in encoded responses, against kio's schemas."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.protocol.throttle_time import throttle_position, with_throttle_time
from broker.server.apis import api_versions

VERSIONS = [
    (key, version)
    for key, api in APIS.items()
    for version in range(api.min_version, api.max_version + 1)
    if key != ApiKey.PRODUCE
]
TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_it_is_where_the_schema_has_it(key: int, version: int) -> None:
    plain = [
        field.name
        for field in fields(codec._entity_type(key, version, "response"))
        if "tag" not in field.metadata
    ]
    position = throttle_position(key, version)
    if "throttle_time" not in plain:
        assert position is None
    elif key == ApiKey.API_VERSIONS:
        assert plain[-1] == "throttle_time"
    elif key in TOKENS:
        assert (plain[-1], position) == ("throttle_time", -4 - (version >= APIS[ApiKey(key)].flexible_from))
    elif key == ApiKey.OFFSET_DELETE:
        assert (plain[:2], position) == (["error_code", "throttle_time"], 2)
    else:
        assert (plain[0], position) == ("throttle_time", 0)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_has_it_behind_its_keys(version: int) -> None:
    body = with_throttle_time(
        ApiKey.API_VERSIONS, version, api_versions.encode(version, Errors.NONE), 86_400_000
    )
    response = codec.decode(ApiKey.API_VERSIONS, version, "response", body)
    assert codec.get(response, "throttle_time", None) == (dt.timedelta(days=1) if version else None)
    assert len(response.api_keys) == len(APIS)


@pytest.mark.parametrize("version", range(4))
def test_responses_about_tokens_have_it_at_their_end(version: int) -> None:
    key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    fields = {"error_code": Errors.NONE, "tokens": [], "throttle_time": 0}
    body = with_throttle_time(key, version, codec.encode(key, version, "response", fields), 86_400_000)
    response = codec.decode(key, version, "response", body)
    assert response.throttle_time == dt.timedelta(days=1)
    assert (response.error_code.value, response.tokens) == (Errors.NONE, ())


def test_nothing_else_of_a_body_changes() -> None:
    body = codec.encode(ApiKey.HEARTBEAT, 4, "response", {"error_code": Errors.REBALANCE_IN_PROGRESS})
    response = codec.decode(
        ApiKey.HEARTBEAT, 4, "response", with_throttle_time(ApiKey.HEARTBEAT, 4, body, 250)
    )
    assert response.throttle_time == dt.timedelta(milliseconds=250)
    assert response.error_code.value == Errors.REBALANCE_IN_PROGRESS
    assert with_throttle_time(ApiKey.HEARTBEAT, 0, b"\0\0", 250) == b"\0\0"
