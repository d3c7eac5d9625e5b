# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Which settings of a broker change while it runs, without a restart. Its properties file is reloaded then.

The broker decides by `broker/config/live_keys.py`; a unit test keeps the two alike.
"""

from __future__ import annotations

# Of Kafka's keys for one listener: listener.name.<listener>.<key>.
LISTENER_PREFIX = "listener.name."
OF_LISTENERS = ("max.connections", "max.connection.creation.rate")
LIVE_KEYS = (
    "background.threads",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.downconversion.enable",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.difference.max.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "metric.reporters",
    "min.insync.replicas",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "remote.fetch.max.wait.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "transaction.partition.verification.enable",
    "unclean.leader.election.enable",
)


def is_live(name: str) -> bool:
    """Returns whether a running broker takes up a changed value of this key."""
    if name.startswith(LISTENER_PREFIX):
        return name[len(LISTENER_PREFIX) :].partition(".")[2] in OF_LISTENERS
    return name in LIVE_KEYS
