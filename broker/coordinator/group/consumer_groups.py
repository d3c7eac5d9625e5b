"""The requests of consumer groups (KIP-848) to the group coordinator: finds the group, and lets it decide."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.consumer import heartbeats
from broker.coordinator.group.consumer.answers import answer
from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.checks import request_error
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember
from broker.coordinator.group.consumer.messages import (
    ClusterTopics,
    ConsumerGroupLimits,
    HeartbeatRequest,
    HeartbeatResult,
)
from broker.coordinator.group.consumer.unstored import PendingAnswer
from broker.coordinator.group.group import Group
from broker.coordinator.group.kinds import state_of
from broker.coordinator.group.memory import Admission
from broker.coordinator.group.messages import Effects, GroupLimits, Moment, Reply
from broker.coordinator.group.migration import (
    MembersEvent,
    MigrationStep,
    adopt,
    maybe_downgrade,
    step,
    upgraded,
)
from broker.coordinator.group.regex_matches import RegexMatches, regex_to_match
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors, KafkaError


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group as ConsumerGroupDescribe shows it. Members come with their target assignments."""

    error: Errors
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[tuple[ConsumerMember, Assignment], ...] = ()


class ConsumerGroups:
    """The consumer groups of this coordinator. Thread-safe. ``topics`` returns the cluster's topics as last known.

    ``enabled``: whether the requests are served at all (``group.coordinator.rebalance.protocols``).
    """

    def __init__(
        self,
        registry: GroupRegistry,
        limits: GroupLimits,
        topics: Callable[[], ClusterTopics],
        *,
        enabled: bool,
        refusal_of: Callable[[str], Errors | None],
        cell_of: Callable[[str], GroupCell | Errors],
        admission_of: Callable[[str], Admission],
    ) -> None:
        self.enabled = enabled
        self._registry = registry
        self._limits = limits
        self._topics = topics
        self._refusal = refusal_of
        self._made_cell = cell_of
        self._admits = admission_of
        self._matches = RegexMatches()

    def heartbeat(self, group_id: str, request: HeartbeatRequest) -> None:
        wrong = request_error(group_id, request, self._limits.consumers)
        if wrong is not None:
            request.respond(HeartbeatResult(wrong.error_code, wrong.message))
            return
        found = self._refusal(group_id) or self._cell(group_id, request)
        if isinstance(found, Errors):
            request.respond(_refused(group_id, found))
            return
        if not request.member_id:
            request = replace(request, member_id=_new_member_id())
        admits, topics = self._admits(group_id), self._topics()
        missing = found.ask(lambda group, _now: regex_to_match(group.consumer, request, topics))
        request = self._matches.matched(request, missing, topics)
        found.run(lambda group, now: _heartbeat(group, request, now, self._limits, topics, admits=admits))
        admits.tell()

    def has(self, group_id: str) -> bool:
        """Whether a group is a consumer group at this moment."""
        cell = self._registry.find(group_id)
        return cell is not None and cell.group.consumer is not None

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        error = self._refusal(group_id)
        cell = self._registry.find(group_id)
        if error is not None:
            return ConsumerGroupDescription(error)
        if cell is None:
            return _not_found(group_id)
        return cell.ask(lambda group, _now: _describe(group, self._limits.consumers))

    def _cell(self, group_id: str, request: HeartbeatRequest) -> GroupCell | Errors:
        """The group's cell, which a member that joins creates."""
        if request.member_epoch != JOIN_EPOCH:
            return self._registry.find(group_id) or Errors.GROUP_ID_NOT_FOUND
        found = self._made_cell(group_id)
        return Errors.GROUP_MAX_SIZE_REACHED if found is Errors.INVALID_COMMIT_OFFSET_SIZE else found


def _heartbeat(
    group: Group,
    request: HeartbeatRequest,
    now: Moment,
    limits: GroupLimits,
    topics: ClusterTopics,
    *,
    admits: Admission,
) -> Effects:
    if group.state is GroupState.DEAD:
        return [Reply(request.respond, HeartbeatResult(Errors.COORDINATOR_NOT_AVAILABLE))]
    consumer = group.consumer
    if consumer is None:
        return _join_classic(group, request, now, limits, topics, admits=admits)
    effects = heartbeats.heartbeat(consumer, request, now, limits.consumers, topics, admits=admits)
    _wake(group, consumer, request.member_id)
    return effects + maybe_downgrade(group, now, limits)


def _join_classic(
    group: Group,
    request: HeartbeatRequest,
    now: Moment,
    limits: GroupLimits,
    topics: ClusterTopics,
    *,
    admits: Admission,
) -> Effects:
    """The heartbeat of a member that joins a classic group, which becomes a consumer group if the member is taken."""
    message = f"Group {group.group_id} is not a consumer group."
    if (
        request.member_epoch != JOIN_EPOCH
        or step(group, MembersEvent.CONSUMER_JOINS, limits) is MigrationStep.STAY
    ):
        return [Reply(request.respond, HeartbeatResult(Errors.GROUP_ID_NOT_FOUND, message))]
    try:
        consumer = upgraded(group, topics, limits.consumers)
        if not admits(consumer.weight):
            raise KafkaError(Errors.GROUP_MAX_SIZE_REACHED, "The broker has no memory left for this group.")
        result = heartbeats.beat(consumer, request, now, limits.consumers, topics, admits=admits)
    except MalformedRecord as error:
        message = f"Cannot upgrade the classic group {group.group_id} to consumer group: {error}."
        return [Reply(request.respond, HeartbeatResult(Errors.GROUP_ID_NOT_FOUND, message))]
    except KafkaError as error:
        return [Reply(request.respond, HeartbeatResult(error.error_code, error.message))]
    heartbeats.start(consumer, now, limits.consumers)
    effects = adopt(group, consumer, now)
    return effects + answer(consumer.unstored, PendingAnswer(request.respond, result, HeartbeatResult))


def _wake(group: Group, consumer: ConsumerGroup, member_id: str) -> None:
    """Sees to it that the group wakes at the member's deadlines."""
    session_ms = consumer.sessions.get(member_id)
    if session_ms is not None:
        group.wake_by(session_ms)
    revocation_ms = consumer.revocations.get(member_id)
    if revocation_ms is not None:
        group.wake_by(revocation_ms)


def _describe(group: Group, limits: ConsumerGroupLimits) -> ConsumerGroupDescription:
    consumer = group.consumer
    if consumer is None:
        return ConsumerGroupDescription(
            Errors.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
        )
    if group.state is GroupState.DEAD:
        return _not_found(group.group_id)
    return ConsumerGroupDescription(
        Errors.NONE,
        None,
        state_of(group).value,
        consumer.epoch,
        consumer.assignment_epoch,
        heartbeats.preferred_assignor(consumer, limits),
        tuple((member, consumer.target_of(member_id)) for member_id, member in consumer.members.items()),
    )


def _not_found(group_id: str) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _refused(group_id: str, error: Errors) -> HeartbeatResult:
    message = f"Consumer group {group_id} not found." if error is Errors.GROUP_ID_NOT_FOUND else None
    return HeartbeatResult(error, message)


def _new_member_id() -> str:
    """A random member id, as Kafka prints its UUIDs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
