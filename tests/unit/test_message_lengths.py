"""Array lengths that cannot be true are refused before the decoder takes memory for them.

The decoder ends its process when memory is wanting, so the proof is made in a child that may have one GiB.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from tests.support.valid_requests import ALL_VERSIONS, World, body

REPOSITORY = Path(__file__).resolve().parents[2]
CLAIMS_EVERYWHERE = """
import resource
from broker.protocol import codec
from tests.support.valid_requests import ALL_VERSIONS, World, body

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
CLAIMS = [bytes.fromhex(text) for text in ("7fffffff", "10000000", "ffffff7f", "ffffffff0f", "ffffffff7f")]
refused = 0
for key, version in ALL_VERSIONS:
    whole = body(key, version, World())
    for position in range(len(whole)):
        for claim in CLAIMS:
            for after in (1, len(claim)):
                try:
                    codec.decode(key, version, "request", whole[:position] + claim + whole[position + after :])
                except codec.ProtocolError:
                    refused += 1
print(refused)
"""


def test_no_length_anywhere_in_any_request_makes_the_decoder_take_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLAIMS_EVERYWHERE], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10_000


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_valid_requests_pass(key: ApiKey, version: int) -> None:
    codec.decode(key, version, "request", body(key, version, World()))


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
