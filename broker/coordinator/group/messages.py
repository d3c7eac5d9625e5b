"""What goes into the pure group and what comes out: requests, results and effects, all plain values.

The group decides and returns :data:`Effects`; the coordinator performs them in order, outside the group's
lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.protocol.errors import Errors
from broker.protocol.produce_messages import ACKS_ALL

NO_MEMBER_ID = ""
NO_GENERATION = -1
NO_LEADER = ""


class Moment(NamedTuple):
    """Now: deadlines run on the monotonic clock, what is stored carries wall time."""

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's ``group.*`` and ``landline.group.*`` settings that decide about members and groups."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    initial_rebalance_delay_ms: int = 3_000
    max_member_bytes: int = 1 << 20
    max_groups: int = 100_000
    max_pending_members: int = 10_000
    max_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader learns of a member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """An answer to JoinGroup; ``members`` only for the leader."""

    member_id: str
    error: Errors = Errors.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """An answer to SyncGroup."""

    error: Errors = Errors.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinCallback = Callable[[JoinResult], None]
SyncCallback = Callable[[SyncResult], None]


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup of one client. ``new_member_id`` is taken if the group has to name the member. ``respond``
    is called exactly once.
    """

    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    respond: JoinCallback
    require_known_member_id: bool = False
    supports_skipping_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup of one member; the leader's has the assignments. ``protocol_type`` and ``protocol_name``
    are None where the version lacks them. ``respond`` is called exactly once.
    """

    member_id: str
    generation_id: int
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    respond: SyncCallback


class MemberIdentity(NamedTuple):
    """Who is meant: by member id, by instance id, or by both."""

    member_id: str
    group_instance_id: str | None = None


class Reply(NamedTuple):
    """Call ``respond`` with ``result``."""

    respond: Callable[[Any], None]
    result: Any


AppendDone = Callable[[Errors, int, Moment], "Effects"]


class Append(NamedTuple):
    """Write ``records`` (key, value or None for a tombstone) to the group's partition of __consumer_offsets.

    ``then`` gets the log's error, the offset of the first record and the time, under the group's lock, and
    returns what follows. ``required_acks`` -1: when all in-sync replicas have it; 1: when it is in the
    leader's log.
    """

    records: tuple[tuple[bytes, bytes | None], ...]
    then: AppendDone
    required_acks: int = ACKS_ALL


Effects = list[Reply | Append]
