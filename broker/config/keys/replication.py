"""Followers, the ISR, and the limits of fetches."""

from __future__ import annotations

from typing import Final

from broker.config.key import CLUSTER_WIDE, HIGH, INT, LONG, MEDIUM, STRING, USED, Key
from broker.config.replica_selector_class import ReplicaSelectorClass
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("num.replica.fetchers", INT, 1, HIGH, mode=CLUSTER_WIDE, use=USED,
        doc="Fetcher threads for each leader that this broker follows."),
    Key("replica.lag.time.max.ms", LONG, 30000, HIGH, use=USED,
        doc="A follower that has not caught up for this long leaves the ISR."),
    Key("replica.fetch.max.bytes", INT, 1_048_576, MEDIUM, valid=at_least(0), use=USED,
        doc="How much a follower requests of one partition at a time."),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, MEDIUM, valid=at_least(0), use=USED,
        doc="How much a follower requests at a time for all partitions together."),
    Key("replica.fetch.wait.max.ms", INT, 500, HIGH, use=USED,
        doc="How long a leader may delay the answer to a follower's fetch if there is nothing new."),
    Key("replica.fetch.min.bytes", INT, 1, HIGH, use=USED,
        doc="How much new data a leader waits for before it answers a follower's fetch."),
    Key("replica.fetch.backoff.ms", INT, 1000, MEDIUM, valid=at_least(0), use=USED,
        doc="How long a follower waits after a failed fetch."),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH, use=USED,
        doc="How often high watermarks are written to disk."),
    Key("replica.socket.timeout.ms", INT, 30000, HIGH, use=USED,
        doc="How long a follower waits for its leader's answer."),
    Key("replica.socket.receive.buffer.bytes", INT, 65536, HIGH, use=USED,
        doc="SO_RCVBUF of a follower's connection to its leader."),
    Key("replica.selector.class", STRING, None, MEDIUM, valid=ReplicaSelectorClass(), use=USED,
        doc="Selects the replica from which a consumer reads (KIP-392). Kafka's RackAwareReplicaSelector "
            "sends consumers with client.rack to an in-sync replica whose broker.rack is the same."),
    Key("fetch.max.bytes", INT, 57_671_680, MEDIUM, valid=at_least(1024), use=USED,
        doc="The largest answer to one fetch."),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, MEDIUM, valid=at_least(0), use=USED,
        doc="How many incremental fetch sessions (KIP-227) are kept. A client without one sends "
            "full fetches."),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        doc="How often completed fetches are removed. Landline removes them at once."),
    Key("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        doc="How often completed produce requests are removed. Landline removes them at once."),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM,
        doc="How often completed record deletions are removed. Landline removes them at once."),
)
# fmt: on
