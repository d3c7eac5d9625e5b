"""What the clients of some topics saw, as a list of events in the order in which they were recorded.

Clients' drivers and the chaos load write it, ``checker`` judges it, ``history_file`` stores it. A record is
identified by its id, which its value begins with: ``<producer>-<sequence number>``. Nothing here depends on a
client library. A record that belongs to a transaction has a Wrote beside its Sent, and is Acked when its
producer knows that the transaction is committed.

Every event names its client, which stands for a process, and has ``at_s``: when the client learned of it, in
seconds of the monotonic clock, which all processes of a machine share. ``topic`` is empty if a history has
only one topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

ONE_GROUP = "group"
"""The group of a history that has only one."""
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
"""The outcomes of transactions, as their producers know them."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer passed the record to its library."""

    producer: str
    record_id: str
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Acked:
    """The broker acknowledged the record. ``offset`` is None if the client does not report it."""

    producer: str
    record_id: str
    partition: int
    offset: int | None
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The library gave up on the record; it may be in the log or not."""

    producer: str
    record_id: str
    reason: str
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A consumer was assigned the partition.

    A member of ``group`` continues at the group's committed offset. Without a group (an empty name) the
    consumer itself chose the partition and its position.
    """

    consumer: str
    partition: int
    topic: str = ""
    group: str = ONE_GROUP
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Revoked:
    """The partition was revoked from a consumer, or the consumer gave it up."""

    consumer: str
    partition: int
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Polled:
    """A consumer received a record."""

    consumer: str
    partition: int
    offset: int
    record_id: str
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator acknowledged that the consumer's group will continue at ``offset``.

    ``began_s`` is when the client sent the request; None if that was not recorded.
    """

    consumer: str
    partition: int
    offset: int
    topic: str = ""
    began_s: float | None = None
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """The leader, asked at ``began_s``, reported that the partition ends at ``offset`` for consumers.

    Must be recorded only while no deposed leader may answer: while every replica is in sync.
    """

    partition: int
    offset: int
    began_s: float
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The coordinator's committed offset of the group after all members had left; -1 when there is none."""

    group: str
    partition: int
    offset: int
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """The partition's final log, read after all clients were done, has the record at ``offset``."""

    partition: int
    offset: int
    record_id: str
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class StoredRange:
    """The partition's final log was read from ``start`` up to its ``end``: a record that is not Stored is
    not there.
    """

    partition: int
    start: int
    end: int
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Began:
    """A producer began a transaction. ``producer`` is one instance of a transactional id: ``<id>.<number>``."""

    producer: str
    transaction: str
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Wrote:
    """A record was passed to the library within a transaction. ``copy_of`` is the id of the record that it
    copies, or empty.
    """

    transaction: str
    record_id: str
    partition: int
    topic: str = ""
    copy_of: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class OffsetSent:
    """The transaction also commits that the group will continue at ``offset``."""

    transaction: str
    group: str
    partition: int
    offset: int
    topic: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Ending:
    """A producer is about to commit (``commits``) or to abort its transaction."""

    transaction: str
    commits: bool
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """What the producer knows of the end of its transaction: COMMITTED, ABORTED or UNKNOWN."""

    transaction: str
    outcome: str
    reason: str = ""
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Fenced:
    """The instance ``by`` of a transactional id was initialized, so nothing that ``producer``, an earlier
    instance, does from now on may have an effect.
    """

    producer: str
    by: str
    at_s: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A client raised or gave up where it should have continued; not an anomaly of the log, but it
    is reported.
    """

    client: str
    what: str
    at_s: float = field(default_factory=time.monotonic, compare=False)


E = TypeVar("E")
Event = (
    Sent
    | Acked
    | Failed
    | Assigned
    | Revoked
    | Polled
    | Committed
    | HighWatermark
    | GroupOffset
    | Stored
    | StoredRange
    | Began
    | Wrote
    | OffsetSent
    | Ending
    | Ended
    | Fenced
    | Trouble
)


@dataclass(slots=True)
class History:
    """The events of some topics and of the groups that read them.

    ``idempotent`` names the producers whose records may be in the log only once.
    """

    events: list[Event] = field(default_factory=list)
    idempotent: frozenset[str] = frozenset()

    def of_type(self, kind: type[E]) -> Iterable[E]:
        """The events of one type, in order."""
        return (event for event in self.events if isinstance(event, kind))


def merged(histories: Iterable[History]) -> History:
    """One history merged from several clients' histories, in order of time."""
    parts = list(histories)
    events = [event for part in parts for event in part.events]
    events.sort(key=lambda event: event.at_s)
    return History(events, frozenset().union(*(part.idempotent for part in parts)))


def record_id(producer: str, sequence: int) -> str:
    """The id, and so the value, of a producer's record number ``sequence``."""
    return f"{producer}-{sequence:07d}"


class Recorder:
    """A history that a client's threads collect. Its lock guards the list, the counts and the sets of ids."""

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
        """The number of acknowledged records that nobody has read yet."""
        return len(self._unread)

    def acked_count(self) -> int:
        """The number of acknowledgements."""
        return self._acked

    def polled_count(self) -> int:
        """The number of different records that were read."""
        return len(self._polled)

    def history(self, idempotent: Iterable[str] = ()) -> History:
        """Returns the events collected so far."""
        with self._lock:
            return History(list(self._events), frozenset(idempotent))
