"""Landline's own settings, prefixed `landline.`, and Kafka's keys that are dynamic broker configs only."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLUSTER_WIDE, INT, LONG, LONG_MAX, LOW, MEDIUM, STRING, USED, Key
from broker.config.validators import at_least, between

# fmt: off
KEYS: Final = (
    Key("landline.http.port", INT, 9090, MEDIUM, valid=between(-1, 65535), use=USED,
        doc="Port of /metrics, /livez, /readyz and /status; 0 takes a free one, -1 turns them off."),
    Key("landline.http.host", STRING, "", LOW, use=USED,
        doc="Address the HTTP port is bound to; every interface when empty."),
    Key("landline.standalone", BOOLEAN, False, LOW, use=USED,
        doc="Metadata kept in this process instead of ZooKeeper. `landline standalone` sets it."),
)

# Written by kafka-reassign-partitions and kafka-configs; Kafka knows them only in /config/brokers.
DYNAMIC_ONLY: Final = (
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes per second for throttled replicas as leaders. Kept; throttles are not applied yet."),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes per second for throttled replicas as followers. Kept; throttles are not applied yet."),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, MEDIUM, valid=at_least(0),
        mode=CLUSTER_WIDE,
        doc="Bytes per second for moves between data directories. Kept; replicas are not moved yet."),
)
# fmt: on
