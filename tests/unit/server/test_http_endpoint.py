"""/metrics, /livez, /readyz and /status, and clients that mean no good."""

import http.client
import json
import re
import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from contextlib import closing
from hashlib import sha256

import pytest
from structlog.testing import capture_logs

from broker.metrics.registry import Metrics
from broker.network.acceptor import BindError
from broker.server.http import http_endpoint
from broker.server.http.http_connections import MAX_CONNECTIONS, MAX_PER_ADDRESS, SLOW_S, HttpConnections
from broker.server.http.http_endpoint import HttpEndpoint
from broker.server.http.overview import Overview
from rig.wait import wait_until
from tests.support.clocks import ManualClock


class Broker:
    """What BrokerServer gives the endpoint."""

    def __init__(self):
        self.reasons = []
        self.alive = True
        self.state = {"state": "RunningAsBroker"}
        self.looks = self.scrapes = 0

    def status(self):
        self.looks += 1
        if self.state is None:
            raise RuntimeError("planned")
        return self.state

    def overview(self):
        self.looks += 1
        return Overview(1, "0.2.0", "Starting", "now")

    def measure(self):
        self.scrapes += 1
        return 42


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def endpoint(broker, clock):
    metrics = Metrics()
    metrics.gauge("answer", "The answer.", broker.measure)
    made = HttpEndpoint(
        "127.0.0.1",
        0,
        metrics,
        status=broker.status,
        unready_reasons=lambda: broker.reasons,
        is_alive=lambda: broker.alive,
        overview=broker.overview,
        clock=clock,
    )
    made.startup()
    yield made
    made.shutdown()


def get(endpoint, path, method="GET", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)) as client:
        client.request(method, path, headers=headers)
        response = client.getresponse()
        return response.status, response.headers, response.read()


def raw(endpoint, content):
    """What comes back for these bytes until the endpoint closes."""
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as client:
        client.sendall(content)
        received = b""
        try:
            while chunk := client.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return received


def test_metrics_are_prometheus_text(endpoint):
    status, headers, body = get(endpoint, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"\nanswer 42.0\n" in body


def test_ready_or_the_reasons_why_not(endpoint, broker):
    assert get(endpoint, "/readyz")[0] == 200
    broker.reasons = ["not registered in ZooKeeper"]
    status, _, body = get(endpoint, "/readyz")
    assert status == 503
    assert json.loads(body) == {"ready": False, "reasons": ["not registered in ZooKeeper"]}


def test_alive_as_long_as_the_event_loop_is(endpoint, broker):
    assert get(endpoint, "/livez")[0] == 200
    broker.alive = False
    assert get(endpoint, "/livez")[0] == 503


def test_status_is_the_brokers_json(endpoint):
    status, headers, body = get(endpoint, "/status?pretty")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"state": "RunningAsBroker"}


def test_the_status_page_may_load_nothing_and_be_framed_by_nobody(endpoint, broker):
    status, headers, body = get(endpoint, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy)
    assert not [part for part in policy if "unsafe" in part]
    assert headers["X-Content-Type-Options"] == "nosniff"
    style = re.search(rb"<style>(.*?)</style>", body, re.DOTALL)[1]
    assert f"style-src 'sha256-{b64encode(sha256(style).digest()).decode()}'" in policy
    assert b"Broker 1" in body
    assert [get(endpoint, "/")[0] for _ in range(5)] == [200] * 5
    assert broker.looks == 1


def test_a_failing_answer_is_500_and_that_of_a_second_later_works(endpoint, broker, clock):
    good, broker.state = broker.state, None
    with capture_logs() as lines:
        assert [get(endpoint, "/status")[0] for _ in range(5)] == [500] * 5
    assert [line["event"] for line in lines] == ["http_request_failed"]
    broker.state = good
    clock.now_ms += 1_000
    assert get(endpoint, "/status")[0] == 200


def test_status_and_metrics_are_made_once_a_second_and_are_the_same_for_all(endpoint, broker, clock):
    pages = [(get(endpoint, "/status?x")[2], get(endpoint, "/metrics")[2]) for _ in range(10)]
    assert (broker.looks, broker.scrapes) == (1, 1)
    assert len(set(pages)) == 1
    broker.state = {"state": "RunningAsController"}
    clock.now_ms += 999
    assert b"RunningAsBroker" in get(endpoint, "/status")[2]
    clock.now_ms += 1
    assert b"RunningAsController" in get(endpoint, "/status")[2]
    assert (broker.looks, broker.scrapes) == (2, 1)


def test_ready_and_alive_are_never_those_of_a_moment_ago(endpoint, broker):
    for reasons, alive in (([], True), (["stopping"], False), ([], True)):
        broker.reasons, broker.alive = reasons, alive
        assert get(endpoint, "/readyz")[0] == (503 if reasons else 200)
        assert get(endpoint, "/livez")[0] == (200 if alive else 503)


def test_what_is_not_there_is_404_and_other_methods_are_not_served(endpoint):
    assert get(endpoint, "/etc/passwd")[0] == 404
    assert get(endpoint, "/livez", method="POST")[0] == 501


def test_head_has_no_body(endpoint):
    status, headers, body = get(endpoint, "/livez", method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, "6", b"")


def test_one_connection_serves_many_requests(endpoint):
    with closing(http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)) as client:
        for _ in range(20):
            client.request("GET", "/livez")
            assert client.getresponse().read() == b"alive\n"


def test_a_body_is_not_taken_for_a_request(endpoint):
    received = raw(
        endpoint, b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nGET /status HTTP/1.1\r\n\r\n"
    )
    assert received.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close" in received


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x10\x00\x12\x00\x03\x00\x00\x00\x01",  # an ApiVersions request
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"\r\n",
        b"",
    ],
    ids=["kafka", "long line", "many headers", "long header", "empty line", "nothing"],
)
def test_garbage_is_answered_or_dropped_and_harms_nobody(endpoint, monkeypatch, garbage):
    monkeypatch.setattr(http_endpoint, "REQUEST_TIMEOUT_S", 0.5)
    received = raw(endpoint, garbage)
    assert b" 200 " not in received
    assert get(endpoint, "/livez")[0] == 200


def test_silent_clients_are_let_go_and_cannot_take_all_connections_for_long(endpoint, monkeypatch):
    monkeypatch.setattr(http_endpoint, "REQUEST_TIMEOUT_S", 0.5)
    silent = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(MAX_CONNECTIONS + 5)]
    wait_until(lambda: get(endpoint, "/livez")[0] == 200)
    for client in silent:
        client.close()


def trickle(client):
    """A byte at a time, until the endpoint hangs up; how many it took."""
    client.settimeout(0.05)
    for sent in range(10_000):
        try:
            client.sendall(b"G")
            if client.recv(1) == b"":
                return sent
        except TimeoutError:
            continue
        except OSError:
            return sent
    return 10_000


def test_a_byte_now_and_then_does_not_keep_a_connection(endpoint, monkeypatch):
    monkeypatch.setattr(http_endpoint, "REQUEST_TIMEOUT_S", 0.5)
    with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
        assert trickle(client) < 10_000


def test_slow_clients_of_one_address_do_not_keep_others_out(endpoint):
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3 * MAX_CONNECTIONS)]
    for client in slow:
        client.sendall(b"G")
    for _ in range(5):
        assert get(endpoint, "/livez")[0] == 200
    for client in slow:
        client.close()


def test_a_new_connection_takes_the_place_of_the_oldest_of_its_address_that_idles():
    connections = HttpConnections()
    pairs = [socket.socketpair() for _ in range(MAX_PER_ADDRESS + 2)]
    try:
        others = connections.admit(pairs[-1][0], "b")
        first, second = (connections.admit(ours, "a") for ours, _ in pairs[:2])
        first.busy = True
        for ours, _ in pairs[2 : MAX_PER_ADDRESS + 1]:
            assert connections.admit(ours, "a") is not None
        assert len(connections) == MAX_PER_ADDRESS + 1
        assert pairs[1][1].recv(1) == b""  # the second, as the first is busy
        pairs[0][1].setblocking(False)
        with pytest.raises(BlockingIOError):
            pairs[0][1].recv(1)
        connections.leave(second)
        for connection in (first, others):
            connections.leave(connection)
        assert len(connections) == MAX_PER_ADDRESS - 1
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_who_is_being_answered_is_not_put_out():
    connections = HttpConnections()
    pairs = [socket.socketpair() for _ in range(MAX_PER_ADDRESS + 1)]
    try:
        for ours, _ in pairs[:-1]:
            connections.admit(ours, "a").busy = True
        assert connections.admit(pairs[-1][0], "a") is None
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_clients_that_do_not_read_keep_no_others_out(endpoint, broker):
    """A page that is larger than the buffers of both ends: its sender waits."""
    broker.state = {"state": "x" * (16 << 20)}
    readers = []
    try:
        for number in range(MAX_CONNECTIONS):
            client = socket.socket()
            readers.append(client)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.bind((f"127.0.0.{2 + number // MAX_PER_ADDRESS}", 0))
            client.connect(("127.0.0.1", endpoint.port))
            client.sendall(b"GET /status HTTP/1.1\r\nHost: h\r\n\r\n")
        wait_until(
            lambda: (
                sum(each.sending_since_s is not None for each in endpoint._connections._open)
                == MAX_CONNECTIONS
            ),
            what="all of them are being answered",
        )
        for _ in range(5):
            assert get(endpoint, "/livez")[0] == 200
    finally:
        for client in readers:
            client.close()


def test_an_address_with_more_than_its_share_makes_room_for_a_new_one():
    """However busy it is: it may open new connections all the time."""
    connections = HttpConnections()
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 3)]
    try:
        for number, (ours, _) in enumerate(pairs[:MAX_CONNECTIONS]):
            connections.admit(ours, f"address-{number // MAX_PER_ADDRESS}").busy = True
        for ours, _ in pairs[MAX_CONNECTIONS:]:
            admitted = connections.admit(ours, "new")
            if admitted is not None:
                admitted.busy = True
        by_address = Counter(each.address for each in connections._open)
        assert by_address == {"address-0": 3, "address-1": 3, "address-2": 3, "address-3": 4, "new": 3}
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_a_slow_reader_makes_room_and_one_that_has_just_begun_does_not():
    connections = HttpConnections()
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 2)]
    try:
        admitted = [connections.admit(ours, f"address-{n}") for n, (ours, _) in enumerate(pairs[:-2])]
        for connection in admitted:
            connection.busy, connection.sending_since_s = True, time.monotonic()
        assert connections.admit(pairs[-1][0], "new") is None
        admitted[3].sending_since_s -= SLOW_S
        assert connections.admit(pairs[-1][0], "new") is not None
        assert [connection.is_put_out for connection in admitted] == [n == 3 for n in range(MAX_CONNECTIONS)]
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_a_host_without_threads_for_a_moment_costs_one_connection(endpoint, monkeypatch):
    """As at the limit of the unit's tasks: RuntimeError from the interpreter."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "http-connection":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with capture_logs() as lines:
        assert raw(endpoint, b"GET /livez HTTP/1.1\r\n\r\n") == b""
    assert [line["event"] for line in lines] == ["http_connection_refused"]
    monkeypatch.undo()
    assert get(endpoint, "/livez")[0] == 200
    assert len(endpoint._connections) <= 1


def test_many_addresses_share_the_connections():
    connections = HttpConnections()
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 5)]
    try:
        for number, (ours, _) in enumerate(pairs):
            assert connections.admit(ours, f"address-{number}") is not None
        assert len(connections) == MAX_CONNECTIONS
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def test_a_port_in_use_is_refused_with_what_to_do(endpoint):
    second = HttpEndpoint(
        "127.0.0.1", endpoint.port, Metrics(), status=dict, unready_reasons=list, is_alive=lambda: True
    )
    with pytest.raises(BindError, match=r"the port is in use; .* change landline\.http\.port"):
        second.startup()
    second.shutdown()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a" * 70])
def test_an_address_that_is_not_this_hosts_is_refused_with_its_key(host):
    elsewhere = HttpEndpoint(host, 0, Metrics(), status=dict, unready_reasons=list, is_alive=lambda: True)
    with pytest.raises(BindError, match=r"; set landline\.http\.host to an address of this host"):
        elsewhere.startup()
    elsewhere.shutdown()


def test_a_default_port_in_use_gives_way_to_a_free_one_that_is_told(endpoint):
    second = HttpEndpoint(
        "127.0.0.1",
        endpoint.port,
        Metrics(),
        status=dict,
        unready_reasons=list,
        is_alive=lambda: True,
        is_default_port=True,
    )
    with capture_logs() as logs:
        second.startup()
    try:
        assert second.port not in (0, endpoint.port)
        assert second.url == f"http://127.0.0.1:{second.port}"
        (warning,) = [line for line in logs if line["event"] == "http_port_in_use"]
        assert (warning["port"], warning["taken_instead"]) == (endpoint.port, second.port)
        assert get(second, "/livez")[0] == 200
    finally:
        second.shutdown()


def test_minus_one_turns_it_off():
    off = HttpEndpoint("", -1, Metrics(), status=dict, unready_reasons=list, is_alive=lambda: True)
    off.startup()
    assert off.port == -1
    off.shutdown()


def test_an_empty_host_is_every_interface():
    everywhere = HttpEndpoint("", 0, Metrics(), status=dict, unready_reasons=list, is_alive=lambda: True)
    everywhere.startup()
    try:
        assert get(everywhere, "/livez")[0] == 200
    finally:
        everywhere.shutdown()
