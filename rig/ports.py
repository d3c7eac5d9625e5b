"""Free loopback ports for the processes that a test starts.

Ports come from 10000-29999: above 32768 they collide with ephemeral ports, where a polling probe can even
connect to itself. Each port is handed out once per process, and each xdist worker has its own range.
"""

from __future__ import annotations

import os
import random
import socket

LOWEST_PORT = 10_000
HIGHEST_PORT = 29_999
SLICES = 8

_handed_out: set[int] = set()
_random = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    """Returns a TCP port at ``host`` that is free and that this process never got before."""
    candidates = _slice_of_this_worker()
    for _ in range(1_000):
        port = _random.choice(candidates)
        if port not in _handed_out and _can_bind(host, port):
            _handed_out.add(port)
            return port
    raise RuntimeError(f"no free port on {host} in {candidates.start}-{candidates.stop - 1}")


def _slice_of_this_worker() -> range:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    width = (HIGHEST_PORT - LOWEST_PORT + 1) // SLICES
    if not worker.startswith("gw"):
        return range(LOWEST_PORT, HIGHEST_PORT + 1)
    start = LOWEST_PORT + int(worker.removeprefix("gw")) % SLICES * width
    return range(start, start + width)


def _can_bind(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
