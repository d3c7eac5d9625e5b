"""Topics: how they are created, and their defaults."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLASS, CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM, USED, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("auto.create.topics.enable", BOOLEAN, True, HIGH, use=USED,
        doc="Whether a topic is created when a client requests its metadata."),
    Key("num.partitions", INT, 1, MEDIUM, valid=at_least(1), use=USED,
        doc="Partitions of a topic that is created without a partition count."),
    Key("default.replication.factor", INT, 1, MEDIUM, use=USED,
        doc="Replicas of a topic that is created without a replication factor."),
    Key("min.insync.replicas", INT, 1, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="How many replicas must be in sync for acks=all to succeed."),
    Key("delete.topic.enable", BOOLEAN, True, HIGH, use=USED,
        doc="Whether topics may be deleted."),
    Key("unclean.leader.election.enable", BOOLEAN, False, HIGH, mode=CLUSTER_WIDE, use=USED,
        doc="Whether an out-of-sync replica may lead when no in-sync replica is alive. Records can be lost."),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, MEDIUM, valid=at_least(1),
        doc="How often a KRaft controller tries unclean elections."),
    Key("create.topic.policy.class.name", CLASS, None, LOW,
        doc="Java class that approves new topics."),
    Key("alter.config.policy.class.name", CLASS, None, LOW,
        doc="Java class that approves config changes."),
)
# fmt: on
