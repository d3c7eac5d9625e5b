"""A member of a group: its ids, its protocols and its waiting requests."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.messages import JoinCallback, JoinRequest, SyncCallback
from broker.coordinator.group.records import MemberRecord
from broker.coordinator.group.weights import member_weight, words_weight

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long the join of a new member may wait. It has no member id yet to send heartbeats with, and its client
may have given up.
"""


class Member:
    """A member of a group; Kafka's MemberMetadata. Its group owns it.

    ``deadline_ms`` (monotonic) is when its session ends. None means that an unanswered request keeps
    it alive. A client may have tens of thousands of protocols, so what was looked for among them last is kept.
    """

    __slots__ = (
        "_chosen",
        "_voted",
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "weight",
        "words",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.set_protocols(protocols)
        self.assignment = b""
        self.weight = 0  # its share of the group's weight; set by the group
        self.awaiting_join: JoinCallback | None = None
        self.awaiting_sync: SyncCallback | None = None
        self.is_new = False
        self.deadline_ms: int | None = None

    @classmethod
    def from_request(cls, member_id: str, request: JoinRequest) -> Member:
        return cls(
            member_id,
            request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )

    @classmethod
    def from_record(cls, record: MemberRecord, protocol: str | None) -> Member:
        member = cls(
            record.member_id,
            record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout_ms,
            protocols=((protocol or "", record.subscription),),
        )
        member.assignment = record.assignment
        return member

    def to_record(self, protocol: str, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    @property
    def protocols_size(self) -> int:
        """The bytes of its protocols as they are stored."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)

    def set_protocols(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.protocols = protocols
        self.words = words_weight(protocols)
        self._chosen: tuple[str | None, bytes] = (None, b"")
        self._voted: tuple[frozenset[str], str] = (frozenset(), "")

    def weight_with(self, words: int) -> int:
        """The member's weight if its protocols weighed ``words``."""
        names = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        return member_weight(names, words)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_kept_alive(self) -> bool:
        """Whether an unanswered request replaces heartbeats. Not for a new member, whose client may
        be gone.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """The subscription under ``protocol``; empty if the member does not support it."""
        if self._chosen[0] != protocol:
            self._chosen = protocol, self._metadata(protocol)
        return self._chosen[1]

    def _metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of the member's protocols that all members support. Raises ValueError if there
        is none.
        """
        if candidates and self._voted[0] == candidates:
            return self._voted[1]
        for name, _ in self.protocols:
            if name in candidates:
                self._voted = candidates, name
                return name
        raise ValueError(f"member {self.member_id} supports none of {sorted(candidates)}")
