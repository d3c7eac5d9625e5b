"""A few Kafka requests that are sent byte by byte, without a client library.

Only what readiness probes and raw-protocol tests share: framing, ApiVersions v0, Metadata v1. The drivers of
client libraries are in ``tests/support/clients``, the benchmark's prepared requests in ``bench``.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

METADATA = 3
API_VERSIONS = 18
HEADER = struct.Struct(">hhih")
KEY_RANGE = struct.Struct(">hhh")


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions that a broker advertises for one API, both ends inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one broker reports it in Metadata: the brokers' ports, and the controller's id
    (-1: none).
    """

    ports: dict[int, int]
    controller_id: int


def framed(
    api_key: int, version: int, correlation_id: int, body: bytes, client_id: bytes = b"probe"
) -> bytes:
    """Returns a complete request: length, header v1, body. Not for flexible versions."""
    header = HEADER.pack(api_key, version, correlation_id, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Reads ``size`` bytes; raises ``ConnectionError`` when the peer closes earlier."""
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(65536, size - len(data)))
        if not chunk:
            raise ConnectionError(f"closed by the peer after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)


def receive_frame(connection: socket.socket) -> bytes:
    """Reads one response, without its length field."""
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, size)


def api_versions(host: str, port: int, timeout_s: float = 2.0) -> dict[int, VersionRange]:
    """Sends ApiVersions v0; returns the version range by API key. Any failure is an ``OSError``."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(framed(API_VERSIONS, 0, 1, b""))
        answer = receive_frame(connection)
    _, error_code, count = struct.unpack_from(">ihi", answer)
    if error_code != 0 or len(answer) != 10 + KEY_RANGE.size * count:
        raise ConnectionError(f"ApiVersions answered error {error_code}, {count} keys, {len(answer)} bytes")
    return {key: VersionRange(low, high) for key, low, high in KEY_RANGE.iter_unpack(answer[10:])}


def answers_api_versions(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether a broker serves on the port."""
    try:
        return bool(api_versions(host, port, timeout_s))
    except OSError:
        return False


def cluster_view(host: str, port: int, timeout_s: float = 2.0) -> ClusterView:
    """Sends Metadata v1 without topics. Any failure is an ``OSError``."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(framed(METADATA, 1, 1, struct.pack(">i", 0)))
        answer = receive_frame(connection)
    (count,) = struct.unpack_from(">i", answer, 4)
    at, ports = 8, {}
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", answer, at)
        at = _after_string(answer, at + 4)
        (ports[node_id],) = struct.unpack_from(">i", answer, at)
        at = _after_string(answer, at + 4)
    (controller_id,) = struct.unpack_from(">i", answer, at)
    return ClusterView(ports, controller_id)


def _after_string(data: bytes, at: int) -> int:
    """The position after a (nullable) string that starts at ``at``."""
    (size,) = struct.unpack_from(">h", data, at)
    return int(at + 2 + max(size, 0))
