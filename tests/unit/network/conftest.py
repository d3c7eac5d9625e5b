"""A server that runs, and a client of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.socket_server import SocketServer
from tests.support.network import Api, make_server


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def server(api: Api) -> Iterator[SocketServer]:
    server = make_server(ConnectionQuotas(100, 100, {}))
    server.bind()
    server.start(api)
    yield server
    server.stop()


@pytest.fixture
def client(server: SocketServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 10) as sock:
        yield sock
