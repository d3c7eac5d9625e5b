"""The memory of consumer groups in this process, in bytes. The constants are measured, with some reserve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.coordinator.common.weights import text_weight
from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.member import ConsumerMember
from broker.coordinator.group.consumer.records import ClassicMemberRecord, TopicRecord
from broker.coordinator.group.weights import words_weight

GROUP_WEIGHT: Final = 2_000
_MEMBER: Final = 1_600
_TOPIC: Final = 400
_NAME: Final = 150
# A partition occurs in a target, in an assignment, and among those that are held.
_PARTITION: Final = 220


def names_weight(texts: Iterable[str | None], subscribed: Iterable[str]) -> int:
    """The weight of a member without its partitions."""
    names = sum(_NAME + text_weight(name) for name in subscribed)
    return _MEMBER + sum(text_weight(text) for text in texts if text) + names


def partitions_weight(topics: Iterable[TopicRecord]) -> int:
    """The weight of the partitions of topics, once they are assigned."""
    return sum(_TOPIC + _PARTITION * topic.partitions for topic in topics)


def member_weight(member: ConsumerMember) -> int:
    return (
        names_weight(member.texts, member.topics)
        + classic_weight(member.classic)
        + assignment_weight(member.assigned)
        + assignment_weight(member.pending_revocation)
    )


def classic_weight(classic: ClassicMemberRecord | None) -> int:
    """The weight of what a member of the classic protocol has said."""
    return 0 if classic is None else words_weight(classic.protocols)


def assignment_weight(assignment: Assignment) -> int:
    return sum(_TOPIC + len(numbers) * _PARTITION // 2 for numbers in assignment.values())


def regex_weight(regex: str, names: Iterable[str]) -> int:
    """The weight of a regular expression with the topics that it matches."""
    return names_weight((regex,), names)
