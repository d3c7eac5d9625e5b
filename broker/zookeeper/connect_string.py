"""Parses ``zookeeper.connect``: ``host:port,host:port/chroot``."""

from __future__ import annotations

import socket
from collections.abc import Callable

DEFAULT_PORT = 2181

#: Makes a connected socket one that speaks TLS with the server of that host name. Raises OSError.
Secure = Callable[[socket.socket, str], socket.socket]


def parse_connect_string(connect: str) -> tuple[str, str]:
    """``(hosts, chroot)``. The chroot is empty, or starts with a slash and does not end with one."""
    hosts, slash, chroot = connect.strip().partition("/")
    chroot = chroot.strip("/")
    return hosts, f"/{chroot}" if slash and chroot else ""


def server_addresses(connect: str) -> list[tuple[str, int]]:
    """Host and port of every server; the default port is 2181. Raises ValueError for a port that is not
    a number.
    """
    hosts, _ = parse_connect_string(connect)
    return [_address(entry.strip()) for entry in hosts.split(",") if entry.strip()]


def _address(entry: str) -> tuple[str, int]:
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return entry.strip("[]"), DEFAULT_PORT
    return host.strip("[]"), int(port)
