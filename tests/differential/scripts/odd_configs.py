"""Odd values of configs, only to look at: of topics that are there, of topics that are to be made, and of brokers."""

from __future__ import annotations

from typing import Final

from broker.protocol.api_keys import ApiKey
from tests.differential.script import Script, Step, constant
from tests.differential.scripts.shapes import BROKER_KIND, TOPIC_KIND, Row, new_topic, resources

TOPIC: Final = "oddly-configured"
_SET: Final = 0
_OF_TOPICS: Final = (
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,delete"),
    ("compression.gzip.level", "0"),
    ("compression.lz4.level", "18"),
    ("compression.type", "none"),
    ("compression.zstd.level", "23"),
    ("delete.retention.ms", "-1"),
    ("flush.ms", "0"),
    ("follower.replication.throttled.replicas", "0:1"),
    ("follower.replication.throttled.replicas", "x"),
    ("index.interval.bytes", "-1"),
    ("leader.replication.throttled.replicas", "*"),
    ("local.retention.bytes", "5"),
    ("local.retention.ms", "5"),
    ("local.retention.ms", "99999999999999"),
    ("max.compaction.lag.ms", "0"),
    ("message.format.version", "0.10.0"),
    ("message.format.version", "9.9"),
    ("message.timestamp.difference.max.ms", "5"),
    ("message.timestamp.type", "createtime"),
    ("min.cleanable.dirty.ratio", "0.25"),
    ("min.cleanable.dirty.ratio", "2"),
    ("min.insync.replicas", "0"),
    ("remote.log.copy.disable", "false"),
    ("remote.log.copy.disable", "true"),
    ("remote.log.delete.on.disable", "true"),
    ("remote.storage.enable", "false"),
    ("remote.storage.enable", "true"),
    ("retention.bytes", "-5"),
    ("retention.ms", ""),
    ("retention.ms", " 7 "),
    ("retention.ms", "-2"),
    ("segment.index.bytes", "3"),
    ("segment.jitter.ms", "-1"),
    ("segment.ms", "0"),
    ("unclean.leader.election.enable", "maybe"),
)
_OF_BROKERS: Final = (
    ("broker.id", "3"),
    ("leader.replication.throttled.rate", "1000000"),
    ("listeners", "PLAINTEXT://:0"),
    ("log.cleaner.backoff.ms", "1000"),
    ("log.cleaner.io.buffer.size", "600000"),
    ("log.cleaner.threads", "2"),
    ("log.message.timestamp.difference.max.ms", "5"),
    ("log.preallocate", "true"),
    ("log.retention.minutes", "5"),
    ("log.retention.ms", "soon"),
    ("log.segment.bytes", "5"),
    ("max.connections", "100"),
    ("max.connections.per.ip.overrides", "127.0.0.1:7"),
    ("max.connections.per.ip.overrides", "bad"),
    ("message.max.bytes", "1048589"),
    ("metric.reporters", ""),
    ("min.insync.replicas", "1"),
    ("no.such.key", "1"),
    ("num.io.threads", "0"),
    ("num.io.threads", "9"),
    ("num.network.threads", "2"),
    ("producer.id.expiration.ms", "86400000"),
    ("remote.log.index.file.cache.total.size.bytes", "5"),
    ("sasl.jaas.config", "x"),
    ("ssl.keystore.location", "/x"),
    ("transaction.partition.verification.enable", "false"),
    ("unclean.leader.election.enable", "true"),
)


def _set(whose: str, resource: str, kind: int, key: str, value: str) -> Step:
    configs: list[Row] = [{"name": key, "config_operation": _SET, "value": value}]
    return Step(
        f"{key}={value} of {whose}",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        constant(**resources(resource, kind, configs=configs), validate_only=True),
        (1,),
    )


def _make(key: str, value: str) -> Step:
    topic = new_topic("oddly-made", configs={key: value})
    change = constant(topics=[topic], validate_only=True)
    return Step(f"{key}={value} of a new topic", ApiKey.CREATE_TOPICS, change, (7,))


ODD_CONFIGS: Final = Script(
    "odd configs",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(TOPIC)]), (7,)),
        *(_set("a topic", TOPIC, TOPIC_KIND, key, value) for key, value in _OF_TOPICS),
        *(_make(key, value) for key, value in _OF_TOPICS),
        *(_set("all brokers", "", BROKER_KIND, key, value) for key, value in _OF_BROKERS),
        *(_set("a broker", "1", BROKER_KIND, key, value) for key, value in _OF_BROKERS),
    ],
)
