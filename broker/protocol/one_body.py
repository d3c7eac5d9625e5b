"""A message for many destinations that differs only in one number: it is encoded once, and the number is
then replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from broker.protocol.fields import Fields

Write = Callable[[Fields], bytes]


class OneBody(Fields):
    """The fields of such a message without the number ``name``, an int64. Every field before it must be of
    fixed size. Thread-safe.

    :meth:`to` makes the message for one destination. :func:`broker.protocol.codec.encode` encodes the body
    only for the first of them. All of them must use the same API and version.
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
        """The encoded body, in which the number is 0. The first caller encodes it."""
        with self._lock:
            if self._body is None:
                self._body = write({**self.fields, self.name: 0})
            return self._body


class Addressed(Fields):
    """The message for one destination."""

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
        """The body with the number at ``position``."""
        body = self._shared.body(write)
        return b"".join((body[:position], self._value.to_bytes(8, "big", signed=True), body[position + 8 :]))
