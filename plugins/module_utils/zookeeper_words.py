# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""ZooKeeper's four-letter commands, for the modules."""

from __future__ import annotations

import socket

TIMEOUT_S = 3.0
DEFAULT_PORT = 2181
_NOT_SERVING = "not currently serving"
_ANY = {"", "0.0.0.0", "::"}  # noqa: S104 (told apart, not bound)


def four_letter_word(host: str, port: int, word: str) -> str:
    """Returns the answer to one of ZooKeeper's commands, empty when there is no answer."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    except OSError:
        return ""


def ask_state(host: str, port: int, timeout_s: float = TIMEOUT_S) -> str:
    """Returns a server's state as clients see it: serves, alone (it has no quorum), silent or unclear.

    Unclear: the server sends another answer, or closes the connection without one. A server that uses TLS, or
    has its four-letter commands disabled, may still serve. Silent: also a stopped process, to which the
    kernel still connects.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(b"srvr")
            try:
                answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
            except ConnectionResetError:
                return "unclear"
    except OSError:
        return "silent"
    if mode_in(answer):
        return "serves"
    return "alone" if _NOT_SERVING in answer else "unclear"


def servers_in(connect: str) -> dict[str, tuple[str, int]]:
    """Returns host and port of each server in a zookeeper.connect, by its text there."""
    found = {}
    for server in connect.partition("/")[0].split(","):
        host, _unused, port = server.strip().rpartition(":")
        if not host or "]" in port:  # no port: an IPv6 address has colons and brackets
            host, port = server.strip(), str(DEFAULT_PORT)
        found[server.strip()] = (host.strip("[]"), int(port))
    return found


def chroot_in(connect: str) -> str:
    """Returns the chroot of a zookeeper.connect, with its slash; empty if there is none."""
    _unused, slash, path = connect.partition("/")
    return (slash + path).strip().rstrip("/")


def mode_in(srvr: str) -> str:
    """Returns the mode in the answer to srvr."""
    lines = [line for line in srvr.splitlines() if line.startswith("Mode: ")]
    return lines[0].removeprefix("Mode: ").strip() if lines else ""


def reachable(listens_on: str) -> str:
    """Returns the address at which a server that listens on `listens_on` is reached from its own host."""
    return "127.0.0.1" if listens_on in _ANY else listens_on


def ask_mode(listens_on: str, port: int) -> str:
    """Returns a local server's mode: leader, follower, observer or standalone; empty while it has no quorum."""
    return mode_in(four_letter_word(reachable(listens_on), port, "srvr"))
