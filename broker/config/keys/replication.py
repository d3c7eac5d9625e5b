"""Followers, the in-sync set and what a fetch may take."""

from __future__ import annotations

from typing import Final

from broker.config.key import CLUSTER_WIDE, HIGH, INT, LONG, MEDIUM, STRING, USED, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("num.replica.fetchers", INT, 1, HIGH, mode=CLUSTER_WIDE, use=USED,
        doc="Fetcher threads per leader this broker follows."),
    Key("replica.lag.time.max.ms", LONG, 30000, HIGH, use=USED,
        doc="A follower that has not caught up for this long leaves the in-sync set."),
    Key("replica.fetch.max.bytes", INT, 1_048_576, MEDIUM, valid=at_least(0), use=USED,
        doc="How much of one partition a follower asks for at a time."),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, MEDIUM, valid=at_least(0), use=USED,
        doc="How much a follower asks for at a time, all partitions together."),
    Key("replica.fetch.wait.max.ms", INT, 500, HIGH, use=USED,
        doc="How long a leader may hold a follower's fetch when there is nothing new."),
    Key("replica.fetch.min.bytes", INT, 1, HIGH, use=USED,
        doc="How much must be there before a held follower fetch is answered."),
    Key("replica.fetch.backoff.ms", INT, 1000, MEDIUM, valid=at_least(0), use=USED,
        doc="How long a follower waits after a failed fetch."),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH, use=USED,
        doc="How often high watermarks are written to disk."),
    Key("replica.socket.timeout.ms", INT, 30000, HIGH, use=USED,
        doc="How long a follower waits for its leader's answer."),
    Key("replica.socket.receive.buffer.bytes", INT, 65536, HIGH, use=USED,
        doc="SO_RCVBUF of a follower's connection to its leader."),
    Key("replica.selector.class", STRING, None, MEDIUM,
        doc="Java class that picks the replica a consumer reads from."),
    Key("fetch.max.bytes", INT, 57_671_680, MEDIUM, valid=at_least(1024), use=USED,
        doc="The largest answer to one fetch."),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, MEDIUM, valid=at_least(0), use=USED,
        doc="How many incremental fetch sessions (KIP-227) are kept; without one a reader sends full fetches."),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        doc="How often completed fetches are purged. Landline removes them at once."),
    Key("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        doc="How often completed produces are purged. Landline removes them at once."),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM,
        doc="How often completed deletions are purged. Landline removes them at once."),
)
# fmt: on
