"""A group coordinator that serves consumer groups (KIP-848), and consumers that send their heartbeats to it."""

from __future__ import annotations

import uuid
from typing import Any, Final

from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.messages import ClusterTopics, HeartbeatRequest, HeartbeatResult
from broker.coordinator.group.consumer.records import TopicRecord
from broker.coordinator.group.consumer_groups import ConsumerGroupDescription
from tests.support.group_fakes import REBALANCE_MS, Answers, Harness

TOPIC: Final = uuid.UUID(int=1)
SESSION_MS: Final = 45_000


class ConsumerHarness(Harness):
    """A coordinator with a topic ``t`` of four partitions."""

    def __init__(self, **config: object) -> None:
        super().__init__(**{"group_coordinator_rebalance_protocols": "classic,consumer", **config})
        self.has_topics(t=4)

    def has_topics(self, **partitions: int) -> None:
        """From now on the cluster has these topics, with ids in the order of their names."""
        by_name = {
            name: TopicRecord(uuid.UUID(int=1 + number), name, partitions[name])
            for number, name in enumerate(sorted(partitions, key=lambda one: (one != "t", one)))
        }
        self.topics = ClusterTopics(self.topics.version + 1, by_name)

    def send(self, member_id: str, epoch: int, *, group: str = Harness.GROUP, **fields: Any) -> Answers:
        answers = Answers()
        request = HeartbeatRequest(
            member_id, epoch, answers, client_id="client", client_host="/127.0.0.1", **fields
        )
        self.coordinator.consumers.heartbeat(group, request)
        return answers

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatResult:
        return self.send(member_id, epoch, **fields).result

    def enter(self, member_id: str, *names: str, **fields: Any) -> HeartbeatResult:
        """A member joins that subscribes to ``t``, or to these topics."""
        names = names or ("t",)
        first = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}, "subscribed_names": frozenset(names)}
        return self.beat(member_id, 0, **{**first, **fields})

    def described(self, group: str = Harness.GROUP) -> ConsumerGroupDescription:
        return self.coordinator.consumers.describe(group)

    def epochs(self) -> dict[str, int]:
        """The members' epochs."""
        return {member.member_id: member.member_epoch for member, _ in self.described().members}

    def targets(self) -> dict[str, Assignment]:
        """The members' target assignments."""
        return {member.member_id: target for member, target in self.described().members}


def parts(result: HeartbeatResult) -> set[int] | None:
    """The partitions of ``t`` in the assignment; None if it is not told."""
    return None if result.assignment is None else set(result.assignment.get(TOPIC, ()))
