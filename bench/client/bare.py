"""Servers that do the least that a request takes, as processes of their own beside the brokers.

They tell a broker's share of a figure from that of the machine: sockets, scheduling, and the measuring client.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager

START_TIMEOUT_S = 30.0


@contextmanager
def bare_server(serve: Callable[..., None], *arguments: object) -> Iterator[int]:
    """Runs ``serve(pipe, *arguments)``, which sends its port by the pipe and serves until it is killed. Yields the
    port. Raises TimeoutError.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_TIMEOUT_S):
            raise TimeoutError(f"{serve.__module__}'s server did not start")
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()
