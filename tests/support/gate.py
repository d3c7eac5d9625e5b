"""A gate at a function: for tests in which one thread is inside a function while another one arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

WAIT_S = 20


class Gate:
    """A gate that stops the first caller of a function until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        real = getattr(owner, name)

        def gated(*args: object, **options: object) -> object:
            if not self.reached.is_set():
                self.reached.set()
                assert self._open.wait(WAIT_S)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, gated)

    @contextmanager
    def held_by(self, action: Callable[[], object]) -> Iterator[None]:
        """Holds ``action`` at the gate in its own thread during the block; it has ended afterwards."""
        failures: list[BaseException] = []

        def run() -> None:
            try:
                action()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert self.reached.wait(WAIT_S)
        try:
            yield
        finally:
            self._open.set()
            thread.join(WAIT_S)
        assert not thread.is_alive()
        if failures:
            raise failures[0]
