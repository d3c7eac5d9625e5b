"""Clients in their own processes: real clients share no thread, so that one does not wait for
another's work.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import ClassVar, Generic, ParamSpec, Self, TypeVar, cast

ANSWER_TIMEOUT_S = 120.0
T = TypeVar("T")
P = ParamSpec("P")


class ClientDiedError(RuntimeError):
    """A client's process ended without a result; its traceback is on the standard error."""


class ClientProcess(Generic[T]):
    """A process that runs ``work``: ready when the ``with`` block begins, it waits for ``go``, and ends with
    the block.

    ``context`` is its start method. The CPU time of a spawned process is included in this process's after its
    end; a process of the fork server is ready sooner.
    """

    context: ClassVar[SpawnContext | ForkServerContext] = multiprocessing.get_context("spawn")

    def __init__(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> None:
        self._pipe, theirs = self.context.Pipe()
        self._process = self.context.Process(
            target=_serve, args=(theirs, work, arguments, named), daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    @property
    def done(self) -> bool:
        """Whether it has a result, or died."""
        return self._pipe.poll()

    def done_within(self, seconds: float) -> bool:
        """Whether it has a result, or dies, within this many seconds."""
        return self._pipe.poll(seconds)

    def go(self) -> None:
        """Starts the work."""
        self._pipe.send(None)

    def result(self) -> T:
        """Waits for the result of ``work``, and for the end of the process: only then its CPU time is known.

        Raises TimeoutError, and ``ClientDiedError`` when the work raised.
        """
        result = cast(T, self._receive())
        self._process.join(ANSWER_TIMEOUT_S)
        return result

    def _receive(self) -> object:
        if not self._pipe.poll(ANSWER_TIMEOUT_S):
            raise TimeoutError(f"a client process did not answer within {ANSWER_TIMEOUT_S:.0f} s")
        try:
            return self._pipe.recv()
        except EOFError:
            raise ClientDiedError("a client process died") from None


def _serve(
    pipe: Pipe, work: Callable[..., T], arguments: tuple[object, ...], named: dict[str, object]
) -> None:
    pipe.send(None)
    pipe.recv()
    pipe.send(work(*arguments, **named))
