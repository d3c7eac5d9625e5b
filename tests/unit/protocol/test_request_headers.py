"""Headers of requests, byte by byte: with a client id, with tags, and the one that has neither."""

from __future__ import annotations

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.framing import RequestHeader, parse_request_header, request_prefix

NUMBER = bytes.fromhex("00000007")
BODY = bytes.fromhex("00001267")
HEADERS = [
    (ApiKey.CONTROLLED_SHUTDOWN, 0, None, "0007 0000"),
    (ApiKey.CONTROLLED_SHUTDOWN, 1, "me", "0007 0001"),
    (ApiKey.CONTROLLED_SHUTDOWN, 3, "me", "0007 0003"),
    (ApiKey.STOP_REPLICA, 0, "me", "0005 0000"),
]


def header_of(key: ApiKey, version: int, client_id: str | None, begin: str) -> bytes:
    flexible = key == ApiKey.CONTROLLED_SHUTDOWN and version == 3
    client = b"" if client_id is None else b"\0\2" + client_id.encode()
    return bytes.fromhex(begin) + NUMBER + client + (b"\0" if flexible else b"")


@pytest.mark.parametrize(("key", "version", "client_id", "begin"), HEADERS)
def test_a_request_has_a_client_id_except_for_the_first_controlled_shutdown(
    key: ApiKey, version: int, client_id: str | None, begin: str
) -> None:
    header = header_of(key, version, client_id, begin)
    found = parse_request_header(memoryview(header + BODY))
    assert found == RequestHeader(key, version, 7, client_id, len(header))


@pytest.mark.parametrize(("key", "version", "client_id", "begin"), HEADERS)
def test_the_broker_writes_the_headers_that_it_reads(
    key: ApiKey, version: int, client_id: str | None, begin: str
) -> None:
    header = header_of(key, version, client_id, begin)
    length = (len(header) + len(BODY)).to_bytes(4, "big")
    assert request_prefix(key, version, 7, "me", len(BODY)) == length + header


@pytest.mark.parametrize("size", range(5))
def test_a_header_without_a_client_id_ends_where_its_body_begins_however_short_that_is(size: int) -> None:
    header = header_of(*HEADERS[0])
    found = parse_request_header(memoryview(header + BODY[:size]))
    assert (found.correlation_id, found.body_offset) == (7, len(header))


@pytest.mark.parametrize("size", range(8))
def test_a_header_without_a_client_id_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(memoryview((bytes.fromhex("0007 0000") + NUMBER)[:size]))
