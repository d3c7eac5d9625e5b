"""Locks that tell of themselves: what ``threading.Lock``, ``RLock`` and ``Condition`` are while they are traced."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from tests.stress.lock_sites import LockSite

_real_lock, _real_rlock, _RealCondition = _thread.allocate_lock, threading.RLock, threading.Condition


class Held(NamedTuple):
    """A lock that a thread holds: its name and which one of that name."""

    name: str
    identity: int


class Listener(Protocol):
    """Hears of every lock that a thread is about to wait for."""

    def about_to_take(self, name: str, identity: int, held: list[Held]) -> None: ...


_mine = threading.local()
# When each thread last took a lock, by its ident: one that takes locks gets on, however long what it does lasts.
last_taken: dict[int, float] = {}


def _held_now() -> list[Held]:
    try:
        return _mine.held  # type: ignore[no-any-return]
    except AttributeError:
        _mine.held = []
        return _mine.held  # type: ignore[no-any-return]


def held_here() -> list[str]:
    """The names of the traced locks that this thread holds."""
    return [held.name for held in _held_now()]


class TracedLock:
    """A lock with a name. It may be released by another thread than took it, as the real one."""

    def __init__(self, name: str, listener: Listener) -> None:
        self._inner = _real_lock()
        self._held = Held(name, id(self))
        self._listener = listener
        self._where: list[Held] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        held = _held_now()
        if blocking:
            self._listener.about_to_take(*self._held, held)
        if not self._inner.acquire(blocking, timeout):
            return False
        self._where = held
        held.append(self._held)
        last_taken[_thread.get_ident()] = time.monotonic()
        return True

    def release(self) -> None:
        where = self._where
        self._inner.release()
        where.remove(self._held)

    def locked(self) -> bool:
        return self._inner.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class TracedRLock:
    """One that its holder may take again; also what a condition is made over."""

    def __init__(self, name: str, listener: Listener) -> None:
        self._inner: Any = _real_rlock()
        self._held = Held(name, id(self))
        self._listener = listener

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._inner._is_owned():
            return bool(self._inner.acquire(blocking, timeout))
        held = _held_now()
        if blocking:
            self._listener.about_to_take(*self._held, held)
        if not self._inner.acquire(blocking, timeout):
            return False
        held.append(self._held)
        last_taken[_thread.get_ident()] = time.monotonic()
        return True

    def release(self) -> None:
        self._inner.release()
        if not self._inner._is_owned():
            _held_now().remove(self._held)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What threading.Condition asks of its lock: to let go of it while it waits, and to take it again as often.

    def _is_owned(self) -> bool:
        return bool(self._inner._is_owned())

    def _release_save(self) -> Any:
        _held_now().remove(self._held)
        return self._inner._release_save()

    def _acquire_restore(self, state: Any) -> None:
        held = _held_now()
        if held:
            self._listener.about_to_take(*self._held, held)
        self._inner._acquire_restore(state)
        held.append(self._held)


@contextmanager
def traced_locks(sites: Iterable[LockSite], listener: Listener) -> Iterator[None]:
    """Has every lock that is made at one of ``sites`` traced. Comes before the import of what makes them."""
    names = {(str(site.path), site.line): site.name for site in sites}
    real = {kind: getattr(threading, kind) for kind in ("Lock", "RLock", "Condition")}

    def traced(kind: str, make: Callable[[str, Listener], object]) -> Callable[..., object]:
        def made(*arguments: object) -> object:
            caller = sys._getframe(1)
            name = names.get((caller.f_code.co_filename, caller.f_lineno))
            return real[kind](*arguments) if name is None else make(name, listener)

        return made

    def condition(name: str, heard: Listener) -> object:
        return _RealCondition(TracedRLock(name, heard))  # type: ignore[arg-type]

    patched = {"Lock": TracedLock, "RLock": TracedRLock, "Condition": condition}
    for kind, make in patched.items():
        setattr(threading, kind, traced(kind, make))
    try:
        yield
    finally:
        for kind, original in real.items():
            setattr(threading, kind, original)
