"""Requests come in whole and in order over real sockets, and so do their answers."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import threading

import pytest

from broker.network.socket_server import SocketServer
from broker.utils.file_region import FileRegion
from rig.wait import last_for, wait_until
from tests.support.network import MAX_FRAME, Api, answer, frame, is_closed, read_answer


def test_request_is_served_on_the_processors_thread(client: socket.socket, api: Api) -> None:
    client.sendall(frame(7, b"hello"))
    assert read_answer(client) == (7, b"hello")
    assert api.thread_names == {"network-thread-0"}


def test_pipelined_requests_are_answered_in_their_order(client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(b"".join(frame(number) for number in range(5)))
    wait_until(lambda: api.seen == [0, 1, 2, 3, 4], what="all requests seen")
    api.parked[1].respond(answer(api.parked[1]))
    assert [read_answer(client)[0] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_who_reads_no_answers_is_served_no_more_requests_than_a_few_large_ones(
    client: socket.socket, api: Api
) -> None:
    """A request of some bytes may ask for all topics, and 128 may be under way; the sockets hold some megabytes too."""
    api.answers = b"x" * 1_000_000
    client.sendall(b"".join(frame(number) for number in range(100)))
    wait_until(lambda: len(api.seen) >= 8, what="the first answers are made")
    last_for(0.3)
    assert len(api.seen) < 50
    assert [read_answer(client)[0] for _ in range(100)] == list(range(100))


def test_who_reads_no_small_answers_is_served_all_the_same(client: socket.socket, api: Api) -> None:
    client.sendall(b"".join(frame(number) for number in range(100)))
    wait_until(lambda: len(api.seen) == 100, what="all are served")


def test_dear_requests_that_wait_for_something_do_not_hold_back_the_ones_behind_them(
    client: socket.socket, api: Api
) -> None:
    """Three fetches that wait for records, each from a client that sends the next before."""
    api.cost_ms, api.park = 15, {0, 1, 2}
    client.sendall(b"".join(frame(number) for number in range(4)))
    wait_until(lambda: api.seen == [0, 1, 2, 3], what="all requests seen")
    for number in (2, 0, 1):
        api.parked[number].respond(answer(api.parked[number]))
    assert [read_answer(client)[0] for _ in range(4)] == [0, 1, 2, 3]


def test_queued_request_holds_back_dear_ones_too(client: socket.socket, api: Api) -> None:
    api.cost_ms, api.queue = 15, {3}
    client.sendall(b"".join(frame(number) for number in range(8)))
    assert [read_answer(client)[0] for _ in range(3)] == [0, 1, 2]
    wait_until(lambda: 3 in api.parked, what="request 3 queued")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert api.seen == [0, 1, 2, 3]
    client.settimeout(10)
    api.parked[3].respond(answer(api.parked[3]))
    assert [read_answer(client)[0] for _ in range(5)] == [3, 4, 5, 6, 7]


def test_queued_request_holds_back_the_ones_behind_it(client: socket.socket, api: Api) -> None:
    api.queue = {0}
    client.sendall(frame(0) + frame(1))
    wait_until(lambda: 0 in api.parked, what="request 0 queued")
    assert api.seen == [0]
    api.parked[0].respond(answer(api.parked[0]))
    assert [read_answer(client)[0] for _ in range(2)] == [0, 1]


def test_request_waits_while_the_channel_is_full(client: socket.socket, api: Api) -> None:
    api.full = {0}
    client.sendall(frame(0, b"kept") + frame(1))
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(10)
    api.full = set()
    assert [read_answer(client) for _ in range(2)] == [(0, b"kept"), (1, b"")]


@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000, MAX_FRAME - 20])
def test_request_of_any_size_arrives_whole(client: socket.socket, size: int) -> None:
    body = os.urandom(size)
    for number in range(3):
        threading.Thread(target=client.sendall, args=(frame(number, body),), daemon=True).start()
        assert read_answer(client) == (number, body)


def test_requests_cut_into_single_bytes_arrive_whole(client: socket.socket) -> None:
    for byte in frame(1, b"abc") + frame(2, b"def"):
        client.sendall(bytes((byte,)))
    assert [read_answer(client) for _ in range(2)] == [(1, b"abc"), (2, b"def")]


def test_announced_length_beyond_the_limit_closes_the_connection(client: socket.socket) -> None:
    client.sendall(struct.pack(">i", MAX_FRAME + 1))
    assert is_closed(client)


def test_negative_length_closes_the_connection(client: socket.socket) -> None:
    client.sendall(struct.pack(">i", -1))
    assert is_closed(client)


def test_unknown_api_key_closes_the_connection(client: socket.socket) -> None:
    client.sendall(frame(1, api_key=999))
    assert is_closed(client)


def test_garbage_closes_the_connection_and_no_other(client: socket.socket, server: SocketServer) -> None:
    with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 10) as other:
        client.sendall(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert is_closed(client)
        other.sendall(frame(1))
        assert read_answer(other) == (1, b"")


def test_file_region_is_sent_between_bytes(client: socket.socket, api: Api) -> None:
    content = os.urandom(3_000_000)
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(content)
        api.park = {5}
        client.sendall(frame(5))
        wait_until(lambda: 5 in api.parked)
        size = 2_500_000
        head = struct.pack(">ii", 4 + size + 3, 5)
        api.parked[5].respond((head, FileRegion(file, 100, size), b"end"))
        assert read_answer(client) == (5, content[100 : 100 + size] + b"end")


def test_acks_0_style_request_gets_no_answer(client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(frame(1) + frame(2))
    wait_until(lambda: 1 in api.parked)
    api.parked[1].respond_nothing()
    assert read_answer(client)[0] == 2


def test_answering_twice_is_an_error(client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(frame(1))
    wait_until(lambda: 1 in api.parked)
    request = api.parked[1]
    request.respond(answer(request))
    with pytest.raises(RuntimeError, match="answered twice"):
        request.respond(answer(request))


def test_answers_of_other_threads_go_out_at_once_however_many_wake_the_processor(
    client: socket.socket, api: Api
) -> None:
    rounds = 300
    for start in range(0, 8 * rounds, 8):
        numbers = range(start, start + 8)
        api.park = set(numbers)
        client.sendall(b"".join(frame(number) for number in numbers))
        wait_until(lambda numbers=numbers: all(number in api.parked for number in numbers), interval=0.0005)
        threads = [
            threading.Thread(
                target=lambda number=number: api.parked[number].respond(answer(api.parked[number]))
            )
            for number in numbers
        ]
        for thread in threads:
            thread.start()
        assert [read_answer(client)[0] for _ in numbers] == list(numbers)
        for thread in threads:
            thread.join()
    client.sendall(frame(9999))
    assert read_answer(client)[0] == 9999


def test_a_closed_connection_is_marked_as_gone(server: SocketServer, client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(frame(1))
    wait_until(lambda: 1 in api.parked)
    assert not api.parked[1].connection.gone
    client.close()
    wait_until(lambda: api.parked[1].connection.gone)


def test_who_hangs_up_while_a_handler_has_its_request_is_gone(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    api.queue = {1}
    client.sendall(frame(1))
    wait_until(lambda: 1 in api.parked)
    client.close()
    wait_until(lambda: api.parked[1].connection.gone, what="the end seen while nothing is read")


def test_what_was_sent_before_the_end_is_served_though_a_handler_is_waited_for(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    api.queue = {1}
    client.sendall(frame(1) + frame(2))
    wait_until(lambda: 1 in api.parked)
    client.sendall(frame(3))
    client.shutdown(socket.SHUT_WR)
    (processor,) = server._processors
    (connection,) = processor._connections.values()
    wait_until(lambda: connection.is_half_closed, what="the end seen")
    assert not api.parked[1].connection.gone
    api.parked[1].respond(answer(api.parked[1]))
    assert [read_answer(client)[0] for _ in range(3)] == [1, 2, 3]
