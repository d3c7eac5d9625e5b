"""A socket server on loopback with one Processor: the network layer without a broker."""

from __future__ import annotations

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.socket_server import SocketServer

MAX_FRAME = 1 << 20


def bound_server() -> SocketServer:
    """A server with a bound port, to be started and stopped by the caller."""
    server = SocketServer(
        [Endpoint("127.0.0.1", 0, "PLAINTEXT", "PLAINTEXT")],
        num_processors=1,
        max_frame_bytes=MAX_FRAME,
        idle_ms=-1,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=ConnectionQuotas(100, 100, {}),
    )
    server.bind()
    return server
