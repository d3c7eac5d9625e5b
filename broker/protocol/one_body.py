"""A message for many destinations, which differs between them in one number: written once, that number set in place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from broker.protocol.fields import Fields

Write = Callable[[Fields], bytes]


class OneBody(Fields):
    """The fields without that of ``name``, an int64 before which every field has a fixed size. Thread-safe.

    Each destination sends :meth:`to` of it; :func:`broker.protocol.codec.encode` then writes the body for the first of
    them alone. All are sent as one API and version.
    """

    def __init__(self, fields: Fields, name: str) -> None:
        self.fields = fields
        self.name = name
        self._lock = threading.Lock()  # lock order 75
        self._body: bytes | None = None

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def to(self, value: int) -> Addressed:
        return Addressed(self, value)

    def body(self, write: Write) -> bytes:
        """Written by whoever comes first; the number is 0 in it."""
        with self._lock:
            if self._body is None:
                self._body = write({**self.fields, self.name: 0})
            return self._body


class Addressed(Fields):
    """The message to one destination."""

    def __init__(self, shared: OneBody, value: int) -> None:
        self._shared = shared
        self._value = value

    @property
    def name(self) -> str:
        return self._shared.name

    def __getitem__(self, name: str) -> Any:
        return self._value if name == self._shared.name else self._shared.fields[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield self._shared.name

    def __len__(self) -> int:
        return len(self._shared) + 1

    def encoded(self, write: Write, position: int) -> bytes:
        """The body; the number lies at ``position``."""
        body = self._shared.body(write)
        return b"".join((body[:position], self._value.to_bytes(8, "big", signed=True), body[position + 8 :]))
