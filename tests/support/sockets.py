"""A socket server for what is measured without a broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Every connection in a thread of its own; the port."""
    threads: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        with connection, suppress(EOFError, OSError):
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                thread = threading.Thread(target=one, args=(connection,))
                thread.start()
                threads.append(thread)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    for thread in (acceptor, *threads):
        thread.join(10)
