"""A message that is decoded in pieces is the same as one that is decoded at once, wherever its arrays are cut."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from broker.protocol import codec, lengths, pieces
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from tests.support.allocations import allocations
from tests.support.filled_messages import filled
from tests.support.valid_requests import ALL_VERSIONS

KINDS: tuple[codec.Kind, ...] = ("request", "response")
OFFSETS = 8, "request"


def with_longer_arrays(entity: Any, repeats: int) -> Any:
    """Each array in it has its elements so many times, those within them likewise, but every other element's."""
    longer = {}
    for field in fields(entity):
        value = getattr(entity, field.name)
        if isinstance(value, tuple):
            elements = [with_longer_arrays(one, repeats) if is_dataclass(one) else one for one in value]
            longer[field.name] = tuple(
                each for pair in zip(elements, value, strict=True) for each in pair * repeats
            )
        elif is_dataclass(value):
            longer[field.name] = with_longer_arrays(value, repeats)
    return replace(entity, **longer)


@pytest.mark.parametrize("most_copied", [0, pieces.MOST_COPIED])
@pytest.mark.parametrize("piece", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_the_same_in_pieces(
    monkeypatch: pytest.MonkeyPatch, kind: codec.Kind, piece: int, most_copied: int
) -> None:
    monkeypatch.setattr(pieces, "MOST_COPIED", most_copied)
    cut = 0
    for key, version in ALL_VERSIONS:
        entity = with_longer_arrays(codec.decode(key, version, kind, filled(key, version, kind)), 2)
        body = codec.encode(key, version, kind, entity)
        with monkeypatch.context() as patch:
            patch.setattr(lengths, "PIECE", piece)
            assert codec.decode(key, version, kind, body) == entity, (key, version)
            cut += (
                bool(codec.survey(key, version, memoryview(body), sys.maxsize - 1).large)
                if kind == "request"
                else 1
            )
    assert cut > 100


def test_what_stands_behind_a_request_in_pieces_is_ignored_and_behind_a_response_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lengths, "PIECE", 2)
    keys = {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(9)]}
    request = codec.encode(ApiKey.FIND_COORDINATOR, 4, "request", keys)
    assert codec.decode(ApiKey.FIND_COORDINATOR, 4, "request", request + b"xyz").coordinator_keys == (
        *keys["coordinator_keys"],
    )
    answer = filled(ApiKey.METADATA, 12, "response")
    many = codec.encode(
        ApiKey.METADATA,
        12,
        "response",
        with_longer_arrays(codec.decode(ApiKey.METADATA, 12, "response", answer), 3),
    )
    with pytest.raises(ProtocolError, match="3 bytes left"):
        codec.decode(ApiKey.METADATA, 12, "response", many + b"xyz")


def test_a_large_message_with_a_tag_of_another_time_is_decoded_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lengths, "PIECE", 2)
    keys = tuple(f"group-{number}" for number in range(9))
    request = codec.encode(ApiKey.FIND_COORDINATOR, 4, "request", {"key_type": 0, "coordinator_keys": keys})
    assert request.endswith(b"\0")
    tagged = request[:-1] + b"\1\x63\2hi"
    assert codec.decode(ApiKey.FIND_COORDINATOR, 4, "request", tagged).coordinator_keys == keys


def test_no_piece_has_more_elements_than_a_piece_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    array_readers = pieces._array_readers

    def noting(entity_type: Any, name: str) -> tuple[pieces.Reader, pieces.Reader]:
        reader, one = array_readers(entity_type, name)

        def note(view: memoryview, position: int) -> tuple[Any, int]:
            elements, size = reader(view, position)
            read.append(len(elements))
            return elements, size

        return note, one

    monkeypatch.setattr(pieces, "_array_readers", noting)
    partitions = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": ""}
        for number in range(4_500)
    ]
    topics = [{"name": "a", "partitions": partitions}, {"name": "b", "partitions": partitions[:10]}]
    fields_ = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    body = codec.encode(ApiKey.OFFSET_COMMIT, 8, "request", fields_)
    decoded = codec.decode(ApiKey.OFFSET_COMMIT, 8, "request", body)
    assert [len(topic.partitions) for topic in decoded.topics] == [4_500, 10]
    assert [one.partition_index for one in decoded.topics[0].partitions] == list(range(4_500))
    assert sorted(read) == [1, 500, 1_000, 1_000, 1_000, 1_000]


def test_another_thread_runs_while_a_large_message_is_decoded() -> None:
    keys = {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}] * 200_000}
    body = codec.encode(ApiKey.DESCRIBE_CONFIGS, 4, "request", keys)
    surveyed = codec.survey(ApiKey.DESCRIBE_CONFIGS, 4, memoryview(body), sys.maxsize - 1)
    turns, over = [0], threading.Event()

    def count_turns() -> None:
        while not over.is_set():
            turns[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    thread = threading.Thread(target=count_turns)
    thread.start()
    try:
        before = turns[0]
        codec.decode(ApiKey.DESCRIBE_CONFIGS, 4, "request", body, surveyed)
        during = turns[0] - before
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert during > 10_000


def test_large_elements_are_not_copied_to_be_read() -> None:
    assignments = [{"member_id": f"member-{number}", "assignment": bytes(20_000)} for number in range(1_100)]
    fields_ = {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": assignments}
    body = codec.encode(ApiKey.SYNC_GROUP, 3, "request", fields_)
    with allocations() as taken:
        decoded = codec.decode(ApiKey.SYNC_GROUP, 3, "request", body)
        assert taken() < 1.2 * len(body)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * len(body)
    assert [one.assignment for one in decoded.assignments] == [bytes(20_000)] * 1_100
