"""Asynchronous syncs of files: Linux AIO (``IO_CMD_FDSYNC``), through the library caio, on a Processor's loop.

A thread for each sync costs two hand-overs of the interpreter, more than the sync's own system call. Here one
call submits all the syncs of a turn, and the loop is told by an eventfd when some are done. What is to be synced,
and what follows, is for :mod:`.group_commit`.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Final, Protocol

import structlog

_log = structlog.get_logger(__name__)
# Syncs under way at once, of which the kernel counts as many against fs.aio-max-nr (65,536 by default). Each takes a
# place among the 256 of a CPU's work queue, which a disk that hangs should not fill. What is above is left to threads.
CAPACITY: Final = 128
_MOST_A_TURN: Final = 128
_DRAIN_MS: Final = 100
# The kernel's results are signed, caio's callback gets them without a sign.
_SIGN: Final = 1 << 63
_WHOLE: Final = 1 << 64


class RingSync(Protocol):
    """A sync of one file."""

    def fileno(self) -> int:
        """The file's descriptor, valid until :meth:`ended`."""

    def ended(self, error: OSError | None) -> None:
        """The sync is over. On any thread, with no lock of the ring's held; must not raise."""


class SyncRing:
    """Syncs that are under way, as a :class:`broker.network.guests.Guest`. Thread-safe.

    Invariant: each sync that :meth:`submit` took ends once, by whichever thread reaps it first, and is then given
    to ``deliver``: on the loop's thread, or after the loop by :meth:`drain`.
    """

    waits_to_send = False

    def __init__(
        self,
        aio: Any,
        deliver: Callable[[Sequence[Any]], None],
        on_left: Callable[[], None],
    ) -> None:
        """``aio`` is caio's module for Linux AIO; ``deliver`` and ``on_left`` must not raise. Raises SystemError if
        the kernel grants no context, or does not let this process ask for results.
        """
        self._operation = aio.Operation.fdsync
        self._context = aio.Context(CAPACITY)
        self._deliver = deliver
        self._on_left = on_left
        self._lock = threading.Lock()  # lock order 88
        self._completed: list[tuple[Any, int]] = []
        self._ended: deque[Any] = deque()
        self._under_way = 0
        self._closed = False
        self._refused = False  # the first refusal is logged
        #: The thread of the loop; 0 until it is known, and after the loop.
        self.loop_thread = 0
        self._collect()  # tried while there is nothing to lose

    def __repr__(self) -> str:
        return f"<SyncRing {self._under_way} under way>"

    def submit(self, syncs: Sequence[RingSync]) -> int:
        """Begins the syncs, and returns how many of the first ones; the kernel took no more. From any thread."""
        operations = []
        try:
            for sync in syncs:
                operation = self._operation(sync.fileno())
                operation.set_callback(partial(self._note, sync))
                operations.append(operation)
            with self._lock:
                if self._closed:
                    return 0
                taken: int = self._context.submit(*operations[: CAPACITY - self._under_way])
                self._under_way += taken
        except Exception as error:  # none was begun: caio takes back its claims before it raises
            if not self._refused:
                self._refused = True
                _log.warning(
                    "sync_ring_refused",
                    error=str(error) or type(error).__name__,
                    action="threads sync instead",
                )
            return 0
        return taken

    def _note(self, sync: RingSync, result: int) -> None:
        """Called by caio within :meth:`reap`, whose lock is held."""
        self._completed.append((sync, result - _WHOLE if result >= _SIGN else result))

    def reap(self) -> None:
        """Ends the syncs that are done, without waiting. From any thread: one that waits for such a sync may be
        the loop's own.
        """
        self._end_completed()
        self._wake()  # the loop delivers

    def _end_completed(self) -> None:
        with self._lock:
            self._collect()
            completed, self._completed = self._completed, []
        for sync, result in completed:
            sync.ended(None if result >= 0 else OSError(-result, os.strerror(-result)))
            self._ended.append(sync)
        if completed:
            with self._lock:  # not before: who finds none under way finds all that have ended
                self._under_way -= len(completed)

    def _collect(self) -> None:
        """Notes the results that there are. Raises SystemError."""
        try:
            self._context.process_events(CAPACITY)
        except SystemError as error:
            # A process that is stopped and goes on (SIGSTOP, a debugger) finds its call interrupted, if there was
            # no result yet. The eventfd tells of a later one.
            if error.args[:1] != (errno.EINTR,):
                raise

    def _deliver_ended(self) -> None:
        """Delivers syncs that have ended, as many as fit a turn of the loop; the rest have another turn."""
        self._end_completed()
        ended: list[Any] = []
        try:  # another thread may append, and on a drain take
            while self._ended and len(ended) < _MOST_A_TURN:
                ended.append(self._ended.popleft())
        except IndexError:
            pass
        if ended:
            self._deliver(ended)
        if self._ended:
            self._wake()

    def _wake(self) -> None:
        with suppress(OSError):
            os.eventfd_write(self.fileno(), 1)

    # -- as a guest

    def fileno(self) -> int:
        fd: int = self._context.fileno
        return fd

    def on_ready(self) -> bool:
        self.loop_thread = threading.get_ident()
        try:
            with suppress(BlockingIOError):
                self._context.poll()
            self._deliver_ended()
        except Exception:  # a guest must not raise
            _log.exception("sync_ring_failed")
        return True

    def on_left(self) -> None:
        self.loop_thread = 0
        self._on_left()

    def drain(self) -> None:
        """Takes no more syncs, and waits for those under way and delivers them. For a thread, after the loop."""
        with self._lock:
            self._closed = True
        ready = select.poll()
        ready.register(self.fileno(), select.POLLIN)
        while True:
            self._deliver_ended()
            if not self._under_way and not self._ended:
                return
            ready.poll(_DRAIN_MS)
            with suppress(BlockingIOError):
                self._context.poll()


def load_aio() -> Any:
    """The module of caio for Linux AIO, without the rest of the library, which loads asyncio.

    Raises ImportError: caio is not installed or not built for this Python, or the kernel has no AIO for this process.
    """
    package = find_spec("caio")
    if package is None or package.submodule_search_locations is None:
        raise ImportError("caio is not installed")
    spec = PathFinder.find_spec("linux_aio", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("this caio has no linux_aio")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
