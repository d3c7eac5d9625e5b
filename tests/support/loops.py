"""A socket server on loopback with one Processor: the network layer without a broker."""

from __future__ import annotations

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.socket_server import SocketServer
from tests.support.network import make_server


def bound_server() -> SocketServer:
    """A server with a bound port, to be started and stopped by the caller."""
    server = make_server(ConnectionQuotas(100, 100, {}))
    server.bind()
    return server
