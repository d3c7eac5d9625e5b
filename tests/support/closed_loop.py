"""Many connections in one process; each sends the same request again as soon as it is answered.

    python -m tests.support.closed_loop HOST PORT PEERS COUNTED [apart] < FRAME

With `apart`, each connection comes from a loopback address of its own. It is a separate process, so that it
takes no CPU time from the measuring one. The frame is one line in hex; the end of the input ends the process.
It prints `ready` after each connection was answered twice. The file COUNTED, 8 bytes that both processes map,
has the number of answers.
"""

from __future__ import annotations

import mmap
import selectors
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.raw_client import stranger

COUNT = struct.Struct("=q")


@contextmanager
def closed_loop(
    host: str, port: int, peers: int, frame: bytes, directory: Path, *, apart: bool = False
) -> Iterator[Callable[[], int]]:
    """Runs it beside the measurement; yields a function that returns the total number of answers so far."""
    counted = directory / "answers"
    counted.write_bytes(bytes(COUNT.size))
    command = [sys.executable, "-m", "tests.support.closed_loop", host, str(port), str(peers), str(counted)]
    command += ["apart"] * apart
    with (
        counted_in(counted) as count,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(frame.hex() + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield lambda: COUNT.unpack_from(count)[0]
        finally:
            process.stdin.close()
            process.wait(30)


@contextmanager
def counted_in(file: Path) -> Iterator[mmap.mmap]:
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), COUNT.size) as count:
        yield count


@dataclass
class Peer:
    """One connection; answers are separated only by their lengths."""

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


def run(everybody: Sequence[Peer], frame: bytes, is_over: Callable[[], bool], count: mmap.mmap) -> None:
    answers = 0
    chosen = selectors.DefaultSelector()
    chosen.register(sys.stdin, selectors.EVENT_READ)
    for peer in everybody:
        chosen.register(peer.sock, selectors.EVENT_READ, peer)
        peer.ask(frame)
    told = False
    while True:
        for key, _ in chosen.select(1):
            peer = key.data
            if peer is None:
                if is_over():
                    return
            elif peer.is_answered():
                answers += 1
                COUNT.pack_into(count, 0, answers)
                peer.ask(frame)
        if not told and all(peer.answers > 1 for peer in everybody):
            told = True
            print("ready", flush=True)


def connected(host: str, port: int, *, apart: bool) -> Peer:
    return Peer(socket.create_connection((host, port), 60, (stranger(), 0) if apart else None))


if __name__ == "__main__":
    _, _host, _port, _peers, _counted, *_apart = sys.argv
    _everybody = [connected(_host, int(_port), apart=bool(_apart)) for _ in range(int(_peers))]
    _frame = bytes.fromhex(sys.stdin.readline())
    with counted_in(Path(_counted)) as _count:
        run(_everybody, _frame, lambda: not sys.stdin.read(1), _count)
