"""The follower's side of a fetch session (KIP-227): what the leader knows, and so what to send next. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import WantedPartition

Key = tuple[uuid.UUID, int]
_LAST_EPOCH = (1 << 31) - 1
_SESSION_ERRORS = frozenset(
    {
        Errors.FETCH_SESSION_ID_NOT_FOUND,
        Errors.INVALID_FETCH_SESSION_EPOCH,
        Errors.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class NextFetch(NamedTuple):
    """The content of the next request: its session, new or changed partitions, and those to forget."""

    session_id: int
    epoch: int
    topics: Sequence[tuple[uuid.UUID, Sequence[WantedPartition]]]
    forgotten: Sequence[tuple[uuid.UUID, Sequence[int]]]


class FollowerSession:
    """The follower's side of a fetch session. It begins with a full request that asks for a session; a leader
    that grants none is asked again with each request.
    """

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[Key, WantedPartition] = {}
        self._sent: dict[Key, WantedPartition] = {}

    def next(self, wanted: Mapping[Key, WantedPartition]) -> NextFetch:
        """The next request; ``wanted`` is everything to fetch now."""
        self._sent = dict(wanted)
        known = self._known
        changed: dict[uuid.UUID, list[WantedPartition]] = {}
        for key, partition in wanted.items():
            if known.get(key) != partition:
                changed.setdefault(key[0], []).append(partition)
        forgotten: dict[uuid.UUID, list[int]] = {}
        for topic_id, index in known.keys() - wanted.keys():
            forgotten.setdefault(topic_id, []).append(index)
        return NextFetch(self._id, self._epoch, list(changed.items()), list(forgotten.items()))

    @property
    def is_open(self) -> bool:
        """Whether the leader knows the last request."""
        return self._epoch > 0

    def go_on(self, changed: Mapping[Key, WantedPartition]) -> NextFetch:
        """As :meth:`next`, in an open session where only ``changed`` may differ from the last request."""
        known = self._sent = self._known
        topics: dict[uuid.UUID, list[WantedPartition]] = {}
        for key, partition in changed.items():
            if known.get(key) != partition:
                known[key] = partition
                topics.setdefault(key[0], []).append(partition)
        return NextFetch(self._id, self._epoch, list(topics.items()), ())

    def answered(self, error: int, session_id: int) -> bool:
        """Whether the answer may be read; False if only the session ended, and a full request is next.

        Other errors of the whole request are left to the caller; a full request follows them too.
        """
        if error:
            self.reset()
            return error not in _SESSION_ERRORS
        if session_id == 0:
            self.reset()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch >= _LAST_EPOCH else self._epoch + 1
            self._known = self._sent
        return True

    def reset(self) -> None:
        """Makes the next request a full one, which also ends the leader's session.

        Call it if an answer was lost or not used.
        """
        self._epoch = 0
        self._known = {}
