"""The benchmark's clients: prepared batches, requests and answers byte by byte, lanes against a server that lags."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
from functools import partial
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from bench.client.batches import BATCH_OVERHEAD, Codec, encode_batch
from bench.client.lanes import ProduceLane, closing, run_lanes
from bench.client.passing_on import passed_on
from bench.client.process import ClientDiedError, ClientProcess
from bench.client.requests import (
    Fetched,
    RawClientError,
    batch_offsets,
    check_produced,
    create_topic_request,
    produced_error_at,
    read_fetched,
    read_leaders,
    string,
)
from broker.record.compression import decompress
from broker.record.header import crc_is_valid, read_header
from rig.wire import receive_frame


@pytest.mark.parametrize("size", [1, 16 * 1024, 128 * 1024])
def test_a_prepared_batch_fits_its_size_and_holds_whole_records(size) -> None:
    batch = encode_batch(size, now_ms=1)
    assert batch.records == max(1, (size - 61) // 1034)
    assert len(batch.data) <= max(size, 1200)
    assert batch.record_bytes == len(batch.data) - BATCH_OVERHEAD


@pytest.mark.parametrize(
    ("codec", "unpacked"),
    [
        (Codec.GZIP, gzip.decompress),
        (Codec.SNAPPY, partial(decompress, Codec.SNAPPY.value)),
        (Codec.LZ4, lz4.frame.decompress),
        (Codec.ZSTD, lambda body: zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 20)),
    ],
)
def test_a_compressed_batch_holds_the_records_that_a_plain_one_would(codec, unpacked) -> None:
    batch = encode_batch(64 * 1024, codec=codec)
    assert len(unpacked(batch.data[BATCH_OVERHEAD:])) == batch.record_bytes
    assert 0.1 < len(batch.data) / batch.record_bytes < 0.6
    header = read_header(batch.data)
    assert header.record_count == batch.records
    assert crc_is_valid(memoryview(batch.data), header)


def test_the_error_code_of_a_produce_answer_is_found() -> None:
    answer = struct.pack(">ii", 1, 1) + string("topic") + struct.pack(">iihqqq", 1, 0, 6, 0, -1, 0)
    with pytest.raises(RawClientError, match="error code 6") as caught:
        check_produced(memoryview(answer), produced_error_at("topic"))
    assert caught.value.error_code == 6


def test_a_fetch_answer_is_read_up_to_its_records() -> None:
    records = (
        struct.pack(">qi", 40, 3) + b"abc" + struct.pack(">qi", 41, 2) + b"ab" + struct.pack(">qi", 42, 9)
    )
    answer = struct.pack(">iihi", 1, 0, 0, 5) + struct.pack(">i", 1) + string("t")
    answer += struct.pack(">iihqqqii", 1, 0, 0, 77, 77, 0, 0, -1) + struct.pack(">i", len(records)) + records
    found = read_fetched(memoryview(answer), "t")
    assert found == Fetched(77, len(answer) - len(records), len(records))
    assert batch_offsets(memoryview(answer), found) == [40, 41]


def test_leaders_are_read_by_their_ports() -> None:
    answer = struct.pack(">ii", 1, 2)
    for node, port in ((1, 9001), (2, 9002)):
        answer += struct.pack(">i", node) + string("h") + struct.pack(">i", port) + struct.pack(">h", -1)
    answer += struct.pack(">ii", 1, 1) + struct.pack(">h", 0) + string("t") + b"\x00" + struct.pack(">i", 3)
    for partition, leader in ((0, 2), (1, 1), (2, -1)):
        answer += struct.pack(">hii", 0, partition, leader) + struct.pack(">iii", 2, 1, 2) * 2
    assert read_leaders(answer) == {0: 9002, 1: 9001}


def test_a_create_request_is_as_long_as_it_says() -> None:
    request = create_topic_request("topic", 3)
    assert struct.unpack_from(">i", request) == (len(request) - 4,)


def answering(listener: socket.socket, answer: bytes) -> None:
    """Answers each request of one connection."""
    connection, _ = listener.accept()
    with connection:
        while True:
            try:
                receive_frame(connection)
            except ConnectionError:
                return
            connection.sendall(struct.pack(">i", len(answer)) + answer)


@pytest.mark.parametrize("lanes_count", [1, 3])
def test_lanes_stop_after_their_count_and_time_each_answer(lanes_count) -> None:
    answer = struct.pack(">ii", 1, 1) + string("t") + struct.pack(">iih", 1, 0, 0) + bytes(24)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=answering, args=(listener, answer)) for _ in range(lanes_count)]
        for thread in threads:
            thread.start()
        port = listener.getsockname()[1]
        lanes = [
            ProduceLane(port, "t", struct.pack(">i", 3) + b"abc", in_flight=2) for _ in range(lanes_count)
        ]
        with closing(lanes):
            run = run_lanes(lanes, seconds=30, count=50)
        for thread in threads:
            thread.join(10)
    assert run.answered == 50
    assert len(run.all_times_us) == 50
    assert min(run.all_times_us) > 0


def test_lanes_stop_when_they_are_told_to() -> None:
    answer = struct.pack(">ii", 1, 1) + string("t") + struct.pack(">iih", 1, 0, 0) + bytes(24)
    told = iter([False] * 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answering, args=(listener, answer))
        thread.start()
        lane = ProduceLane(listener.getsockname()[1], "t", struct.pack(">i", 3) + b"abc")
        with closing([lane]):
            run = run_lanes([lane], seconds=30, until=lambda: next(told, True))
        thread.join(10)
    assert 0 < run.answered <= 20


def test_a_client_process_works_once_it_is_let_go() -> None:
    with ClientProcess(divmod, 17, 5) as client:
        assert not client.done
        client.go()
        assert client.result() == (3, 2)


def test_a_client_process_that_fails_is_told_as_such() -> None:
    with ClientProcess(divmod, 17, 0) as client:
        client.go()
        with pytest.raises(ClientDiedError):
            client.result()


def test_a_bare_server_acknowledges_each_record_and_passes_it_on(tmp_path: Path) -> None:
    found = passed_on(encode_batch(1), 200, 0.5, tmp_path)
    assert len(found.read_us) == len(found.acked_us) == 100
    assert min(found.read_us + found.acked_us) > 0
