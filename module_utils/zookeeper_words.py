"""ZooKeeper's four-letter commands, for the modules."""

from __future__ import annotations

import socket

TIMEOUT_S = 3.0
_ANY = {"", "0.0.0.0", "::"}  # noqa: S104 (told apart, not bound)


def four_letter_word(host: str, port: int, word: str) -> str:
    """Returns the answer to one of ZooKeeper's commands, empty when nobody answers."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    except OSError:
        return ""


def mode_in(srvr: str) -> str:
    """Returns the mode in the answer to srvr."""
    lines = [line for line in srvr.splitlines() if line.startswith("Mode: ")]
    return lines[0].removeprefix("Mode: ").strip() if lines else ""


def reachable(listens_on: str) -> str:
    """Returns where a server that listens on this address is asked from its own host."""
    return "127.0.0.1" if listens_on in _ANY else listens_on


def ask_mode(listens_on: str, port: int) -> str:
    """Returns a local server's mode: leader, follower, observer or standalone; empty while it has no quorum."""
    return mode_in(four_letter_word(reachable(listens_on), port, "srvr"))
