"""What producers and consumers of one topic saw, as a list of events in the order in which it was recorded.

Clients' drivers write it (``Recorder``), ``checker`` judges it. A record is known by its id, which is its value:
``<producer>-<sequence number>``. Nothing here knows a client library.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer handed the record to its library."""

    producer: str
    record_id: str


@dataclass(frozen=True, slots=True)
class Acked:
    """The broker acknowledged the record. ``offset`` is None where the client does not tell it."""

    producer: str
    record_id: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The library gave the record up; it may be in the log or not."""

    producer: str
    record_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """A consumer was given the partition; it goes on from the group's committed offset."""

    consumer: str
    partition: int


@dataclass(frozen=True, slots=True)
class Polled:
    """A consumer was handed a record."""

    consumer: str
    partition: int
    offset: int
    record_id: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator acknowledged that the group will go on at ``offset``."""

    consumer: str
    partition: int
    offset: int


E = TypeVar("E")
Event = Sent | Acked | Failed | Assigned | Polled | Committed


@dataclass(slots=True)
class History:
    """Events of one topic and one consumer group.

    ``idempotent`` names the producers whose records may be in the log only once.
    """

    events: list[Event] = field(default_factory=list)
    idempotent: frozenset[str] = frozenset()

    def of_type(self, kind: type[E]) -> Iterable[E]:
        """The events of one type, in order."""
        return (event for event in self.events if isinstance(event, kind))


def record_id(producer: str, sequence: int) -> str:
    """Returns the id, and so the value, of a producer's record number ``sequence``."""
    return f"{producer}-{sequence:07d}"


class Recorder:
    """Collects a history from a client's threads. Its lock guards the list, the counts and the sets of ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._acked = 0
        self._unread: set[str] = set()
        self._polled: set[str] = set()

    def add(self, *events: Event) -> None:
        """Appends events in the order in which their client saw them."""
        with self._lock:
            self._events.extend(events)
            for event in events:
                if isinstance(event, Acked):
                    self._acked += 1
                    if event.record_id not in self._polled:
                        self._unread.add(event.record_id)
                elif isinstance(event, Polled):
                    self._polled.add(event.record_id)
                    self._unread.discard(event.record_id)

    def missing(self) -> int:
        """How many acknowledged records nobody has read yet."""
        return len(self._unread)

    def acked_count(self) -> int:
        """How many acknowledgements came."""
        return self._acked

    def polled_count(self) -> int:
        """How many different records were read."""
        return len(self._polled)

    def history(self, idempotent: Iterable[str] = ()) -> History:
        """Returns what was collected so far."""
        with self._lock:
            return History(list(self._events), frozenset(idempotent))
