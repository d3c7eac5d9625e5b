"""The input and output of the pure group code: requests, results and effects, all plain values.

The group decides and returns :data:`Effects`. The coordinator carries them out in order, outside the
group's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.coordinator.group.consumer.messages import ConsumerGroupLimits
from broker.log.producers.verification import VerificationGuard
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import ACKS_ALL

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
NO_LEADER: Final = ""
NEVER_MS: Final = 1 << 62


class Moment(NamedTuple):
    """The current time: deadlines use the monotonic clock, stored records the wall clock."""

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's ``group.*`` and ``landline.group.*`` settings that limit members and groups."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    initial_rebalance_delay_ms: int = 3_000
    max_member_bytes: int = 1 << 20
    max_groups: int = 100_000
    max_pending_members: int = 10_000
    max_bytes: int = 256 << 20
    consumers: ConsumerGroupLimits = field(default_factory=ConsumerGroupLimits)


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader's JoinGroup response lists it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a JoinGroup; ``members`` is filled only for the leader."""

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
    """The answer to a SyncGroup."""

    error: Errors = Errors.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinCallback = Callable[[JoinResult], None]
SyncCallback = Callable[[SyncResult], None]


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup of one client. ``new_member_id`` is used if the group has to give the member an id.
    ``respond`` is called exactly once.
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
    """A SyncGroup of one member. The leader's has the assignments. ``protocol_type`` and ``protocol_name``
    are None in versions without them. ``respond`` is called exactly once.
    """

    member_id: str
    generation_id: int
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    respond: SyncCallback


class MemberIdentity(NamedTuple):
    """Identifies a member by member id, by instance id, or by both."""

    member_id: str
    group_instance_id: str | None = None


class Reply(NamedTuple):
    """Call ``respond`` with ``result``."""

    respond: Callable[[Any], None]
    result: Any


AppendDone = Callable[[Errors, int, Moment], "Effects"]


class ProducerOfBatch(NamedTuple):
    """The producer of a transactional batch, with the guard of its verification (None: not verified)."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None = None


class Append(NamedTuple):
    """Write ``records`` (key, and value or None for a tombstone) to the group's partition
    of __consumer_offsets.

    ``then`` is called under the group's lock with the log's error, the first record's offset and the time,
    and returns further effects. With ``required_acks`` -1 the write is complete when all in-sync replicas
    have it, with 1 when the leader's log has it. With a ``producer`` it is part of that producer's transaction.
    ``earlier`` returns the error so far of the batches before it, of the same change: after one that failed it is not
    written and gets the same error, so that the log has a change in its order.
    """

    records: tuple[tuple[bytes, bytes | None], ...]
    then: AppendDone
    required_acks: int = ACKS_ALL
    producer: ProducerOfBatch | None = None
    earlier: Callable[[], Errors] | None = None


def first_error(errors: Iterable[Errors]) -> Errors:
    """The first that is not NONE, or NONE."""
    for error in errors:
        if error is not Errors.NONE:
            return error
    return Errors.NONE


Effects = list[Reply | Append]
