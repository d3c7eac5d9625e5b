"""Requests of any API with as many smallest elements as one likes: each decodes to what was asked for."""

from __future__ import annotations

import sys

import pytest

from bench.guard.smallest import FOR_BROKERS, array_paths, body, element_fields, named_by
from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from tests.support.valid_requests import ALL_VERSIONS, version_id

OF_CLIENTS = [pair for pair in ALL_VERSIONS if pair[0] not in FOR_BROKERS]


@pytest.mark.parametrize("pair", OF_CLIENTS, ids=version_id)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_every_array_takes_as_many_elements_as_are_asked_for(pair, count) -> None:
    key, version = pair
    for path in array_paths(key, version):
        data = body(key, version, path, count, given={})
        decoded = codec.decode(key, version, "request", data)
        for name in path[:-1]:
            (decoded,) = getattr(decoded, name)
        assert len(getattr(decoded, path[-1])) == count, path
        assert codec.survey(key, version, memoryview(data), sys.maxsize - 1).elements == len(path) - 1 + count


def test_arrays_in_elements_are_found() -> None:
    assert array_paths(ApiKey.OFFSET_FETCH, 9) == [
        ("groups",),
        ("groups", "topics"),
        ("groups", "topics", "partition_indexes"),
    ]
    assert array_paths(ApiKey.HEARTBEAT, 4) == []


def test_fields_on_the_way_and_of_the_elements_are_as_given() -> None:
    given = {"name": "topic", "group_id": "g"}
    data = body(
        ApiKey.OFFSET_COMMIT,
        9,
        ("topics", "partitions"),
        2,
        given=given,
        element={"partition_index": 7, "name": "not here"},
    )
    decoded = codec.decode(ApiKey.OFFSET_COMMIT, 9, "request", data)
    assert (decoded.group_id, decoded.topics[0].name) == ("g", "topic")
    assert [each.partition_index for each in decoded.topics[0].partitions] == [7, 7]


def test_what_only_brokers_ask_is_named() -> None:
    assert {APIS[key].name for key in FOR_BROKERS} == {
        "leader_and_isr",
        "stop_replica",
        "update_metadata",
        "controlled_shutdown",
        "alter_partition",
        "allocate_producer_ids",
    }


@pytest.mark.parametrize("pair", OF_CLIENTS, ids=version_id)
def test_distinct_elements_differ_and_are_otherwise_alike(pair) -> None:
    key, version = pair
    for path in array_paths(key, version):
        name = named_by(key, version, path)
        if name is None:
            with pytest.raises(ValueError, match="have no names"):
                body(key, version, path, 2, given={}, distinct=True)
            continue
        decoded = codec.decode(
            key, version, "request", body(key, version, path, 300, given={}, distinct=True)
        )
        for step in path[:-1]:
            (decoded,) = getattr(decoded, step)
        elements = getattr(decoded, path[-1])
        assert len({getattr(each, name.name) if name.name else each for each in elements}) == 300, path


def test_elements_are_named_by_a_text_before_an_id_and_a_number() -> None:
    assert element_fields(ApiKey.METADATA, 12, ("topics",)) == {"topic_id": "uuid", "name": "string"}
    assert element_fields(ApiKey.OFFSET_FETCH, 9, ("groups", "topics", "partition_indexes")) == {"": "int32"}
    named = [named_by(ApiKey.METADATA, 12, ("topics",)), named_by(ApiKey.FETCH, 17, ("topics",))]
    assert [each.name if each else None for each in named] == ["name", "topic_id"]
