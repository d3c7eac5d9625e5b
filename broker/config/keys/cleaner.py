"""Compaction: topics whose cleanup.policy includes `compact`."""

from __future__ import annotations

from typing import Final

from broker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LONG,
    LONG_MAX,
    MEDIUM,
    USED,
    Key,
)
from broker.config.validators import at_least, between

# fmt: off
KEYS: Final = (
    Key("log.cleaner.enable", BOOLEAN, True, MEDIUM, use=USED,
        doc="Whether topics with the policy `compact` are compacted."),
    Key("log.cleaner.threads", INT, 1, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="Cleaner threads."),
    Key("log.cleaner.backoff.ms", LONG, 15000, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="How long the cleaner sleeps when there is nothing to do."),
    Key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, MEDIUM, mode=CLUSTER_WIDE, use=USED,
        doc="Memory for the offset maps of all cleaner threads together."),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, MEDIUM, mode=CLUSTER_WIDE,
        doc="How full an offset map may become."),
    Key("log.cleaner.io.buffer.size", INT, 524_288, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="Memory for the reads and writes of all cleaner threads together."),
    Key("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, MEDIUM, mode=CLUSTER_WIDE, use=USED,
        doc="The limit of the cleaner's reads and writes together."),
    Key("log.cleaner.delete.retention.ms", LONG, 86_400_000, MEDIUM,
        valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="How long a tombstone of a compacted topic is kept."),
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, MEDIUM,
        valid=between(0, 1), mode=CLUSTER_WIDE, use=USED,
        doc="A compacted log is cleaned when this share of it is uncompacted."),
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, MEDIUM,
        valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="The shortest time a record stays uncompacted."),
    Key("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, MEDIUM,
        valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="The longest time a record may stay uncompacted."),
)
# fmt: on
