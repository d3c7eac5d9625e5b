"""Strings that are longer than Kafka reads: the compact encoding has room for 2 GiB."""

from __future__ import annotations

import struct

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.primitives import write_uvarint
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from tests.support.refusals import Refusals

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

# The bytes before a string, and those behind it.
AROUND_A_STRING = {
    "a topic to produce to": (ApiKey.PRODUCE, 9, b"\0\0\1\0\0\5\xdc\2", b"\1\0\0"),
    "the rack of a reader": (
        ApiKey.FETCH,
        12,
        struct.pack(">iiiibii", -1, 0, 0, 1, 0, 0, -1) + b"\1\1",
        b"\0",
    ),
    "a coordinator's group, alone": (ApiKey.FIND_COORDINATOR, 3, b"", b"\0\0"),
    "a coordinator's group, of several": (ApiKey.FIND_COORDINATOR, 4, b"\0\2", b"\0"),
    "a group in a transaction": (ApiKey.ADD_OFFSETS_TO_TXN, 3, b"\3tx" + bytes(10), b"\0"),
    "a group of a heartbeat": (ApiKey.HEARTBEAT, 4, b"", b"\0\0\0\1\2m\0\0"),
    "a topic whose log is to be moved": (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        b"\2\5/dir\2",
        b"\2\0\0\0\0\0\0\0",
    ),
    "the name of a client's software": (ApiKey.API_VERSIONS, 3, b"", b"\x021\0"),
}


@pytest.mark.parametrize("around", AROUND_A_STRING.values(), ids=AROUND_A_STRING.keys())
def test_string_longer_than_kafka_reads_is_answered_by_hanging_up_and_one_line(
    around: tuple[ApiKey, int, bytes, bytes],
    client: RawClient,
    broker: LandlineStandalone,
    refusals: Refusals,
) -> None:
    key, version, before, behind = around

    def frame(size: int) -> bytes:
        return request_frame(key, version, before + write_uvarint(size + 1) + b"x" * size + behind, 7)

    client.send(frame(32_767))
    assert client.receive_frame()[:4] == struct.pack(">i", 7), "Kafka reads it"
    client.send(frame(32_768))
    assert client.await_close() == b""
    (line,) = refusals.expect()
    assert "a string of 32768 bytes announced; the most is 32767" in line
    assert "client_id=raw" in line
    assert broker.is_ready()
