"""OffsetCommit's responses, which are written without kio: the bytes are kio's in every version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.server.apis.partition_errors import encode_commit_response, topics_with_errors
from broker.utils.topic_partition import TopicPartition

API = APIS[ApiKey.OFFSET_COMMIT]
ANSWERS = [
    {},
    {TopicPartition("t", 0): Errors.NONE},
    # The topics in the order of their first partition, one of which needs two bytes for its number of partitions.
    {
        TopicPartition("é" * 100, 7): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        **{TopicPartition("t", number): Errors.NONE for number in range(200)},
        TopicPartition("é" * 100, 1 << 30): Errors.UNKNOWN_SERVER_ERROR,
    },
]


@pytest.mark.parametrize("version", range(API.min_version, API.max_version + 1))
@pytest.mark.parametrize("errors", ANSWERS, ids=["none", "one", "many"])
def test_a_commit_is_answered_with_the_bytes_that_kio_writes(errors, version):
    expected = codec.encode(ApiKey.OFFSET_COMMIT, version, "response", {"topics": topics_with_errors(errors)})
    assert encode_commit_response(version, errors) == expected


@given(
    version=st.integers(API.min_version, API.max_version),
    errors=st.dictionaries(
        st.builds(
            TopicPartition,
            st.sampled_from(["t", "é" * 63, "é" * 64]) | st.text(max_size=130),
            st.integers(-(1 << 31), (1 << 31) - 1),
        ),
        st.sampled_from(Errors),
        max_size=10,
    ),
)
def test_any_commit_is_answered_with_the_bytes_that_kio_writes(version, errors):
    expected = codec.encode(ApiKey.OFFSET_COMMIT, version, "response", {"topics": topics_with_errors(errors)})
    assert encode_commit_response(version, errors) == expected
