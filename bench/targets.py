"""The two brokers that are compared, each as its operator would start it: default settings, default JVM flags."""

from __future__ import annotations

import enum
from pathlib import Path

from tests.support.brokers import BrokerProcess
from tests.support.kafka_broker import DEFAULT_JVM, KafkaBroker
from tests.support.landline_broker import LandlineBroker, LandlineStandalone

# The same for both: one broker cannot hold three replicas of the internal topics, and deleted topics must give
# their pages back before the next run.
CONFIG: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": 1000,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


class Target(enum.Enum):
    """Who is measured; the value is the name in the report."""

    LANDLINE = "Landline"
    KAFKA = "Apache Kafka 3.9.1"


def zookeeper_broker(target: Target, zk_connect: str, log_dir: Path) -> BrokerProcess:
    """Returns the target's broker for a ZooKeeper that is up, not started."""
    if target is Target.LANDLINE:
        return LandlineBroker(1, zk_connect, log_dir, CONFIG)
    return KafkaBroker(1, zk_connect, log_dir, CONFIG, jvm=DEFAULT_JVM)


def simplest_broker(target: Target, zk_connect: str, data_dir: Path) -> BrokerProcess:
    """Returns the least that serves on an empty directory: Landline needs no ZooKeeper, Kafka 3.9 does."""
    if target is Target.LANDLINE:
        return LandlineStandalone(data_dir, CONFIG)
    return zookeeper_broker(target, zk_connect, data_dir)
