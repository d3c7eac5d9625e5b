"""Topics: how they come into being and what they start with."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLASS, CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM, USED, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("auto.create.topics.enable", BOOLEAN, True, HIGH, use=USED,
        doc="Whether a topic is created when a client asks for its metadata."),
    Key("num.partitions", INT, 1, MEDIUM, valid=at_least(1), use=USED,
        doc="Partitions of a topic created without a count."),
    Key("default.replication.factor", INT, 1, MEDIUM, use=USED,
        doc="Replicas of a topic created without a factor."),
    Key("min.insync.replicas", INT, 1, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="How many replicas must be in sync for acks=all to succeed."),
    Key("delete.topic.enable", BOOLEAN, True, HIGH, use=USED,
        doc="Whether topics may be deleted."),
    Key("unclean.leader.election.enable", BOOLEAN, False, HIGH, mode=CLUSTER_WIDE, use=USED,
        doc="Whether a replica out of sync may lead when no other is alive: records can be lost."),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, MEDIUM, valid=at_least(1),
        doc="How often a KRaft controller tries unclean elections."),
    Key("create.topic.policy.class.name", CLASS, None, LOW,
        doc="Java class that approves new topics."),
    Key("alter.config.policy.class.name", CLASS, None, LOW,
        doc="Java class that approves config changes."),
)
# fmt: on
