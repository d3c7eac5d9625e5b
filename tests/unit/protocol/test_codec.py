"""The codec: mappings to bytes and back, and tagged fields that a newer client may add."""

from __future__ import annotations

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import ProtocolError
from tests.support.valid_requests import ALL_VERSIONS, World, body, version_id

UNKNOWN_TAG = b"\x63\x03abc"  # tag 99, three bytes
# Those that end with an empty section of tagged fields.
FLEXIBLE = [
    (key, version)
    for key, version in ALL_VERSIONS
    if version >= APIS[key].flexible_from and body(key, version, World()).endswith(b"\0")
]


@pytest.mark.parametrize("pair", FLEXIBLE, ids=version_id)
def test_tagged_field_of_a_newer_client_is_skipped(pair) -> None:
    plain = body(*pair, World())
    decoded = codec.decode(*pair, "request", plain[:-1] + b"\x01" + UNKNOWN_TAG)
    assert decoded == codec.decode(*pair, "request", plain)


def test_unknown_tagged_fields_in_nested_structs_are_skipped() -> None:
    topic = b"\x02t" + b"\x02" + b"\0\0\0\0" + b"\0\0\0\0\0\0\0\x05" + b"\xff\xff\xff\xff" + b"\x01"
    partition_end, topic_end, end = (
        b"\x01" + UNKNOWN_TAG,
        b"\x01" + UNKNOWN_TAG,
        b"\x02" + UNKNOWN_TAG + b"\x64\x00",
    )
    request = (
        b"\x02g" + b"\xff\xff\xff\xff" + b"\x02m" + b"\0" + b"\x02" + topic + partition_end + topic_end + end
    )
    decoded = codec.decode(ApiKey.OFFSET_COMMIT, 9, "request", request)
    assert (decoded.group_id, decoded.topics[0].name) == ("g", "t")
    assert decoded.topics[0].partitions[0].committed_offset == 5


def test_known_tagged_fields_are_kept_beside_unknown_ones() -> None:
    fields = {
        "cluster_id": "c",
        "replica_state": {"replica_id": 2, "replica_epoch": 7},
        "max_wait": 1,
        "min_bytes": 1,
        "topics": [],
        "forgotten_topics_data": [],
    }
    plain = codec.encode(ApiKey.FETCH, 17, "request", fields)
    count = plain.index(b"\x02\x00", 20)  # two tags, the first is tag 0
    more = plain[:count] + b"\x03" + plain[count + 1 :] + UNKNOWN_TAG
    decoded = codec.decode(ApiKey.FETCH, 17, "request", more)
    assert (decoded.cluster_id, decoded.replica_state.replica_epoch) == ("c", 7)


def test_truncated_message_with_an_unknown_tag_is_refused() -> None:
    plain = body(ApiKey.METADATA, 12, World())
    with pytest.raises(ProtocolError):
        codec.decode(ApiKey.METADATA, 12, "request", plain[:-1] + b"\x01\x63\x09abc")


def test_fields_that_a_version_lacks_are_dropped_and_absent_ones_take_their_default() -> None:
    encoded = codec.encode(ApiKey.HEARTBEAT, 0, "response", {"error_code": 27, "throttle_time": 5})
    assert encoded == b"\0\x1b"
    decoded = codec.decode(
        ApiKey.HEARTBEAT, 4, "response", codec.encode(ApiKey.HEARTBEAT, 4, "response", {"error_code": 0})
    )
    assert codec.to_ms(decoded.throttle_time) == 0


@pytest.mark.parametrize("version", [0, 4])
def test_a_name_that_no_version_of_a_message_has_is_refused(version) -> None:
    fields = {"error_code": 27, "throttle_time": 5, "error_massage": "?"}
    for _ in range(2):  # what is refused once is not known from then on
        with pytest.raises(ValueError, match="no version of HeartbeatResponse has a field error_massage"):
            codec.encode(ApiKey.HEARTBEAT, version, "response", fields)


@pytest.mark.parametrize("version", [2, 9])
def test_a_name_that_no_version_of_an_element_has_is_refused(version) -> None:
    row = {"partition_index": 0, "error_code": 0}
    good = codec.encode(
        ApiKey.OFFSET_COMMIT, version, "response", {"topics": [{"name": "t", "partitions": [row]}]}
    )
    assert good
    with pytest.raises(ValueError, match="no version of OffsetCommitResponsePartition has a field error"):
        codec.encode(
            ApiKey.OFFSET_COMMIT,
            version,
            "response",
            {"topics": [{"name": "t", "partitions": [row, {**row, "error": 0}]}]},
        )


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("text", ["x" * 40_000, "\U0001f4a5" * 40_000])
def test_error_texts_that_quote_a_long_request_are_cut(version, text):
    row = {"error_code": 40, "error_message": text, "resource_type": 4, "resource_name": "0", "configs": []}
    body = codec.encode(ApiKey.DESCRIBE_CONFIGS, version, "response", {"results": [row]})
    told = codec.decode(ApiKey.DESCRIBE_CONFIGS, version, "response", body).results[0].error_message
    assert told == text[:4096] + "..."


LONG_MAX = (1 << 63) - 1
# The bytes around a duration of 64 bits.
AROUND = {
    (ApiKey.CREATE_DELEGATION_TOKEN, 1): (b"\0\0\0\0", b"", "max_lifetime"),
    (ApiKey.CREATE_DELEGATION_TOKEN, 3): (b"\0\0\x01", b"\0", "max_lifetime"),
    (ApiKey.RENEW_DELEGATION_TOKEN, 0): (b"\0\0\0\x01h", b"", "renew_period"),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 2): (b"\x02h", b"\0", "expiry_time_period"),
    (ApiKey.OFFSET_COMMIT, 3): (b"\0\x01g\xff\xff\xff\xff\0\0", b"\0\0\0\0", "retention_time"),
}


@pytest.mark.parametrize("pair", AROUND, ids=version_id)
@pytest.mark.parametrize("sent_ms", [LONG_MAX, -LONG_MAX - 1, 86_400_000_000_000_000])
def test_a_duration_that_is_too_long_for_python_is_the_longest(pair, sent_ms) -> None:
    before, behind, name = AROUND[pair]
    decoded = codec.decode(*pair, "request", before + sent_ms.to_bytes(8, signed=True) + behind)
    told_ms = codec.to_ms(getattr(decoded, name))
    assert abs(told_ms) > 10**16
    assert (told_ms > 0) is (sent_ms > 0)
    usual = codec.decode(*pair, "request", before + (7).to_bytes(8) + behind)
    assert (type(decoded), codec.to_ms(getattr(usual, name))) == (type(usual), 7)


def test_a_large_message_with_a_long_duration_is_decoded_in_pieces_too() -> None:
    before, _, _ = AROUND[ApiKey.OFFSET_COMMIT, 3]
    row = b"\0\0\0\x05" + bytes(8) + b"\xff\xff"
    topics = b"\0\0\0\x01\0\x01t" + (5_000).to_bytes(4) + row * 5_000
    decoded = codec.decode(ApiKey.OFFSET_COMMIT, 3, "request", before + LONG_MAX.to_bytes(8) + topics)
    assert codec.to_ms(decoded.retention_time) > 10**16
    assert {row.partition_index for row in decoded.topics[0].partitions} == {5}
    assert len(decoded.topics[0].partitions) == 5_000


@pytest.mark.parametrize("pair", AROUND, ids=version_id)
def test_a_truncated_message_with_a_long_duration_is_refused(pair) -> None:
    before, behind, _ = AROUND[pair]
    whole = before + LONG_MAX.to_bytes(8) + behind
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            codec.decode(*pair, "request", whole[:size])
