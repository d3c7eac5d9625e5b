"""The input and output of the consumer group code: requests, results and settings, all plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.policy import MigrationPolicy
from broker.coordinator.group.consumer.records import ClassicMemberRecord, TopicRecord
from broker.protocol.errors import Errors, KafkaError


@dataclass(frozen=True, slots=True)
class ConsumerGroupLimits:
    """The broker's ``group.consumer.*`` settings. The first assignor is the default."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    max_member_bytes: int = 1 << 19
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: MigrationPolicy = MigrationPolicy.DISABLED


class ClusterTopics(NamedTuple):
    """The topics of the cluster, by name. ``version`` changes when one of them does."""

    version: int
    by_name: Mapping[str, TopicRecord]


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The answer to a ConsumerGroupHeartbeat. ``assignment`` is None if it is not told."""

    error: Errors = Errors.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class MatchedAt(NamedTuple):
    """What the result of a regular expression depends on: the version of the cluster's topics, and what the client's
    rights were read from. Rights are compared by identity or value only.
    """

    topics_version: int
    rights: object


class RegexMatch(NamedTuple):
    """The topics that a regular expression matches and the client may describe; or why that could not be found."""

    regex: str
    seen: MatchedAt
    names: frozenset[str] = frozenset()
    refusal: KafkaError | None = None


HeartbeatCallback = Callable[[HeartbeatResult], None]


def _all_of(names: Iterable[str]) -> Iterable[str]:
    return names


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat of one member. What is None has not changed. ``respond`` is called exactly once.
    A JoinGroup of a classic member is made into one with ``classic``.

    ``makes_own_id``: clients of this version make their members' ids. ``may_describe`` returns those of the topics that
    the client may describe; a regular expression matches only these. ``rights``: as long as it is equal,
    ``may_describe`` answers the same. ``match``: what the member's regular expression matches, if that is new.
    """

    member_id: str
    member_epoch: int
    respond: HeartbeatCallback
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_names: frozenset[str] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    makes_own_id: bool = False
    classic: ClassicMemberRecord | None = None
    may_describe: Callable[[Iterable[str]], Iterable[str]] = _all_of
    rights: object = None
    match: RegexMatch | None = None


def no_topics() -> ClusterTopics:
    return ClusterTopics(0, {})
