"""Array lengths that cannot be true are refused before the decoder takes memory for them.

The decoder ends its process when memory is wanting, so the proof is made in a child that may have one GiB.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.lengths import element_type
from tests.support.filled_messages import filled
from tests.support.valid_requests import ALL_VERSIONS, World, body

REPOSITORY = Path(__file__).resolve().parents[3]
CLAIMS_EVERYWHERE = """
import resource
import sys
from broker.protocol import codec
from tests.support.filled_messages import filled
from tests.support.valid_requests import ALL_VERSIONS, World, body

KIND = sys.argv[1]
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
CLAIMS = [bytes.fromhex(text) for text in ("7fffffff", "10000000", "ffffff7f", "ffffffff0f", "ffffffff7f")]
refused = 0
for key, version in ALL_VERSIONS:
    whole = body(key, version, World()) if KIND == "request" else filled(key, version, "response")
    for position in range(len(whole)):
        for claim in CLAIMS:
            for after in (1, len(claim)):
                try:
                    codec.decode(key, version, KIND, whole[:position] + claim + whole[position + after :])
                except codec.ProtocolError:
                    refused += 1
print(refused)
"""


@pytest.mark.parametrize("kind", ["request", "response"])
def test_no_length_anywhere_in_any_message_makes_the_decoder_take_memory(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLAIMS_EVERYWHERE, kind],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10_000


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_valid_requests_pass(key: ApiKey, version: int) -> None:
    codec.decode(key, version, "request", body(key, version, World()))


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_messages_with_everything_in_them_pass(key: ApiKey, version: int, kind: codec.Kind) -> None:
    codec.decode(key, version, kind, filled(key, version, kind))


def test_array_of_a_response_that_no_memory_could_hold_is_refused() -> None:
    thirty_two_gib = struct.pack(">i", 0) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(ProtocolError, match=r"create_topics v7 response: .*elements announced"):
        codec.decode(ApiKey.CREATE_TOPICS, 7, "response", thirty_two_gib)


def test_array_in_a_tagged_field_is_checked_like_any_other() -> None:
    before_the_tags = struct.pack(">h", 0) + b"\1" + struct.pack(">i", 0)
    supported_features = b"\1\0\5\xff\xff\xff\xff\x0f"  # one field: tag 0, 5 bytes, 2^32-2 elements
    with pytest.raises(ProtocolError, match=r"supported_features of \d+ elements announced"):
        codec.decode(ApiKey.API_VERSIONS, 3, "response", before_the_tags + supported_features)


def test_tagged_field_must_take_the_bytes_that_it_announces() -> None:
    before_the_tags = struct.pack(">h", 0) + b"\1" + struct.pack(">i", 0)
    epoch_of_four_bytes = b"\1\1\4" + bytes(8)
    with pytest.raises(ProtocolError, match="tagged field 1 does not take the 4 bytes"):
        codec.decode(ApiKey.API_VERSIONS, 3, "response", before_the_tags + epoch_of_four_bytes)


def test_no_layout_has_what_the_walk_does_not_know() -> None:
    """A struct in a tagged field that may be null, kio's ``X | None``, would have a number before it."""
    for key, version in ALL_VERSIONS:
        for kind in ("request", "response"):
            for field in _all_fields(codec._entity_type(key, version, kind)):
                inner, is_array = element_type(field.type)
                is_tag = "tag" in field.metadata
                is_struct = is_tag and field.metadata.get("kafka_type") is None and not is_array
                assert not (is_struct and inner is not field.type), (key, version, kind, field.name)


def _all_fields(entity_type: Any) -> Iterator[Field[Any]]:
    for field in fields(entity_type):
        yield field
        if field.metadata.get("kafka_type") is None:
            yield from _all_fields(element_type(field.type)[0])


@pytest.mark.parametrize("claim", [2, 1000, (1 << 31) - 1])
def test_array_longer_than_its_bytes_is_named_in_the_refusal(claim: int) -> None:
    one_name = struct.pack(">h", 5) + b"topic"
    with pytest.raises(ProtocolError, match=rf"metadata v1 request: .*{claim} elements"):
        codec.decode(ApiKey.METADATA, 1, "request", struct.pack(">i", claim) + one_name[:3])


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.CREATE_TOPICS])
def test_nested_array_longer_than_its_bytes_is_refused(key: ApiKey) -> None:
    version = {ApiKey.FETCH: 11, ApiKey.OFFSET_COMMIT: 2, ApiKey.CREATE_TOPICS: 1}[key]
    whole = body(key, version, World())
    after_name = whole.index(b"topic" if key is not ApiKey.CREATE_TOPICS else b"created") + 5
    if key is ApiKey.CREATE_TOPICS:
        after_name = whole.index(b"\0\0\0\1\0\1") + 6
    lie = whole[:after_name] + struct.pack(">i", 1 << 28) + whole[after_name + 4 :]
    with pytest.raises(ProtocolError, match=f"{1 << 28} elements"):
        codec.decode(key, version, "request", lie)


def test_null_is_refused_where_the_protocol_has_no_null() -> None:
    with pytest.raises(ProtocolError, match="topics must be an array, has length -1"):
        codec.decode(ApiKey.LIST_OFFSETS, 1, "request", struct.pack(">ii", -1, -1))


def test_null_passes_where_it_means_all() -> None:
    assert codec.decode(ApiKey.METADATA, 1, "request", struct.pack(">i", -1)).topics is None


@pytest.mark.parametrize(
    "assignment", [None, {"topic_partitions": []}, {"topic_partitions": [{"partitions": [1]}]}]
)
def test_struct_that_may_be_null_is_walked(assignment: Any) -> None:
    fields_ = {"error_code": 0, "member_epoch": 3, "heartbeat_interval": 5, "assignment": assignment}
    encoded = codec.encode(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, "response", fields_)
    for more in (b"\0", b"\1\x63\x03abc"):  # without tagged fields, and with one that is not known
        decoded = codec.decode(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, "response", encoded[:-1] + more)
        assert (decoded.assignment is None) == (assignment is None)


COMPACT = [
    pytest.param(key, version, kind, id=f"{key.name}-{version}-{kind}")
    for key, version in ALL_VERSIONS
    for kind in ("request", "response")
    if codec._entity_type(key, version, kind).__flexible__
]


@pytest.mark.parametrize(("key", "version", "kind"), COMPACT)
def test_no_compact_string_is_longer_than_kafka_reads(key: ApiKey, version: int, kind: codec.Kind) -> None:
    message = codec.decode(key, version, kind, filled(key, version, kind))
    for longest, longer in zip(
        _each_with(message, "x" * 32_767), _each_with(message, "x" * 32_768), strict=True
    ):
        codec.decode(key, version, kind, codec.encode(key, version, kind, longest))
        with pytest.raises(ProtocolError, match="a string of 32768 bytes announced; the most is 32767"):
            codec.decode(key, version, kind, codec.encode(key, version, kind, longer))


def test_compact_bytes_may_be_longer_than_a_string() -> None:
    token = {"auth_bytes": bytes(40_000)}
    encoded = codec.encode(ApiKey.SASL_AUTHENTICATE, 2, "request", token)
    assert codec.decode(ApiKey.SASL_AUTHENTICATE, 2, "request", encoded).auth_bytes == token["auth_bytes"]
    member = {"member_id": "m", "assignment": bytes(40_000)}
    sync = {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": [member]}
    sync |= {"protocol_type": "consumer", "protocol_name": "range"}
    encoded = codec.encode(ApiKey.SYNC_GROUP, 5, "request", sync)
    (given,) = codec.decode(ApiKey.SYNC_GROUP, 5, "request", encoded).assignments
    assert given.assignment == member["assignment"]


def _each_with(message: Any, text: str) -> Iterator[Any]:
    """The message with this text in the place of one of its strings, each in turn."""
    for field in fields(message):
        _, is_array = element_type(field.type)
        value = getattr(message, field.name)
        if field.metadata.get("kafka_type") == "string":
            yield replace(message, **{field.name: (*value[:-1], text) if is_array else text})
        elif field.metadata.get("kafka_type") is None:
            for changed in _each_with(value[-1] if is_array else value, text):
                yield replace(message, **{field.name: (*value[:-1], changed) if is_array else changed})
