"""Many connections of one process that each ask the same again as soon as they are answered.

    python -m tests.support.closed_loop HOST PORT PEERS < FRAME

A process of its own, so that what it does takes no time of who measures. The frame is one line in hex; the end of the
input ends it. It says `ready` once each connection was answered twice, and how many answers there were at its end.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@contextmanager
def closed_loop(host: str, port: int, peers: int, frame: bytes) -> Iterator[None]:
    """Runs it beside what is measured; raises when it was not answered."""
    command = [sys.executable, "-m", "tests.support.closed_loop", host, str(port), str(peers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(frame.hex() + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.stdin.close()
            said = process.stdout.read()
            process.wait(30)
    assert int(said) > 0


@dataclass
class Peer:
    """One connection; answers are told apart by their lengths alone."""

    sock: socket.socket
    answers: int = 0
    rest: int = 0
    head: bytes = b""

    def ask(self, frame: bytes) -> None:
        self.sock.sendall(frame)

    def is_answered(self) -> bool:
        if not self.rest:
            self.head += self.sock.recv(4 - len(self.head)) or _closed()
            if len(self.head) < 4:
                return False
            self.rest, self.head = int.from_bytes(self.head, "big"), b""
            return False
        self.rest -= len(self.sock.recv(self.rest)) or len(_closed())
        self.answers += not self.rest
        return not self.rest


def _closed() -> bytes:
    raise ConnectionError("closed by the broker")


def run(host: str, port: int, peers: int, frame: bytes, is_over: Callable[[], bool]) -> int:
    chosen = selectors.DefaultSelector()
    chosen.register(sys.stdin, selectors.EVENT_READ)
    everybody = [Peer(socket.create_connection((host, port), 60)) for _ in range(peers)]
    for peer in everybody:
        chosen.register(peer.sock, selectors.EVENT_READ, peer)
        peer.ask(frame)
    told = False
    while True:
        for key, _ in chosen.select(1):
            peer = key.data
            if peer is None:
                if is_over():
                    return sum(peer.answers for peer in everybody)
            elif peer.is_answered():
                peer.ask(frame)
        if not told and all(peer.answers > 1 for peer in everybody):
            told = True
            print("ready", flush=True)


if __name__ == "__main__":
    _, _host, _port, _peers = sys.argv
    _frame = bytes.fromhex(sys.stdin.readline())
    print(run(_host, int(_port), int(_peers), _frame, lambda: not sys.stdin.read(1)))
