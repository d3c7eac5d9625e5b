"""Landline's own settings, prefixed `landline.`, and Kafka's keys that are dynamic broker configs only."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLUSTER_WIDE, INT, LONG, LONG_MAX, LOW, MEDIUM, STRING, USED, Key
from broker.config.validators import at_least, between, one_of

# fmt: off
KEYS: Final = (
    Key("landline.http.port", INT, 8092, MEDIUM, valid=between(-1, 65535), use=USED,
        doc="Port of /metrics, /livez, /readyz and /status; 0 takes a free one, -1 turns them off. When it is not set "
            "and 8092 is in use, a free one is taken and told. The head of a request has 5 s and 16 KiB, "
            "an address 4 connections of 16; a new one takes the place of the oldest that idles."),
    Key("landline.http.host", STRING, "", LOW, use=USED,
        doc="Address the HTTP port is bound to; every interface when empty."),
    Key("landline.log.dir.min.free.bytes", LONG, 1 << 30, MEDIUM, valid=at_least(0), use=USED,
        doc="Below so much free space a log directory takes no records of clients, but serves everything else. The "
        "floor is the smaller of this and landline.log.dir.min.free.percent; 0 turns it off."),
    Key("landline.log.dir.min.free.percent", INT, 5, MEDIUM, valid=between(0, 100), use=USED,
        doc="The same floor as a share of the file system, so that it fits small disks too; 0 turns it off."),
    Key("landline.deleted.segment.read.max.ms", LONG, 60_000, LOW, valid=at_least(1), use=USED,
        doc="How long an answer may be on its way to a slow reader after the file of a segment that it is from was "
            "deleted, which is file.delete.delay.ms after retention let it go. Its space on the disk is not free "
            "before; then the connection is closed. Kafka closes it as the file is deleted."),
    Key("landline.produce.validation", STRING, "first", MEDIUM, valid=one_of("first", "all", "none"), use=USED,
        doc="How far clients' record batches are looked into before they are appended: `first` the first record, and "
            "compressed ones are decompressed; `all` every record, as Kafka does, for 1 to 2 µs each; `none` trusts "
            "the header. What each finds: replication.md. What goes to compacted topics, or to those with a codec or "
            "time bounds of their own, is always looked at whole."),
    Key("landline.producer.id.max.count", INT, 10_000, LOW, valid=at_least(1), use=USED,
        doc="Producer ids that a partition remembers, half a kilobyte each. Above it a tenth is forgotten, as by "
            "producer.id.expiration.ms: of the half that wrote the longest ago those with one batch, then the oldest."),
    Key("landline.producer.id.broker.max.count", INT, 200_000, LOW, valid=at_least(1), use=USED,
        doc="Producer ids that all partitions of this broker remember together, looked at every 2 s. Above it those "
            "with the most forget, as by landline.producer.id.max.count, down to nine tenths of it."),
    Key("landline.auto.create.topics.per.second", INT, 100, LOW, valid=at_least(1), use=USED,
        doc="Topics that auto.create.topics.enable makes, at one request and in a second; clients ask for the others "
            "again."),
    Key("landline.group.max.count", INT, 100_000, LOW, valid=at_least(1), use=USED,
        doc="Groups that this broker coordinates, 2 KB each and what is in them. A member or an offset that would "
            "make another one is refused with GROUP_MAX_SIZE_REACHED."),
    Key("landline.group.member.max.bytes", INT, 1 << 20, LOW, valid=at_least(1), use=USED,
        doc="What a member may say of itself in JoinGroup: names and metadata of all its protocols. More is refused "
            "with INVALID_REQUEST. It is kept while the session lasts, up to group.max.session.timeout.ms."),
    Key("landline.group.max.bytes", LONG, 256 << 20, LOW, valid=at_least(1), use=USED,
        doc="Memory that groups, their members' words and assignments, and their committed offsets may take: 100,000 "
            "groups of one offset each, or 600,000 offsets of few groups. Above it a new member, or one that says "
            "more than before and more than 4 KiB, is refused with GROUP_MAX_SIZE_REACHED, and the offset of a "
            "partition that the group has none of with INVALID_COMMIT_OFFSET_SIZE. Who is in stays in and commits on; "
            "what is loaded counts, and is not refused."),
    Key("landline.group.pending.max.count", INT, 10_000, LOW, valid=at_least(1), use=USED,
        doc="Members of a group that were given an id and did not come back with it yet (KIP-394). The next one is "
            "refused with GROUP_MAX_SIZE_REACHED."),
    Key("landline.answer.max.bytes", INT, 64 << 20, LOW, valid=at_least(1), use=USED,
        doc="How large an answer may be that a few bytes ask for: to DescribeGroups, OffsetFetch, DescribeConfigs, "
            "ListGroups, or to a leader's JoinGroup. Twice as much is held while it is made. A group's row counts 128 "
            "bytes beside its texts. What does not fit is refused: groups behind others with "
            "COORDINATOR_LOAD_IN_PROGRESS, so that clients ask for them again, a leader with GROUP_MAX_SIZE_REACHED, "
            "else INVALID_REQUEST. librdkafka takes no answer above 100 MB."),
    Key("landline.inter.broker.peers", STRING, "registered", MEDIUM, valid=one_of("any", "registered", "listener"),
        use=USED,
        doc="Whose requests that only brokers send are served: `registered` those from addresses of hosts in "
            "`/brokers/ids` and from this host, and only what comes by `inter.broker.listener.name` as soon as all "
            "brokers have several listeners and are registered as speaking by that one; `listener` of these only what "
            "comes by `inter.broker.listener.name`, whatever the others say; `any` for brokers behind NAT, or that "
            "speak from other addresses than they advertise. Others get CLUSTER_AUTHORIZATION_FAILED."),
    Key("landline.standalone", BOOLEAN, False, LOW, use=USED,
        doc="Metadata kept in this process instead of ZooKeeper. `landline standalone` sets it."),
    Key("landline.internal.topics.raise.replication.enable", BOOLEAN, True, LOW, use=USED,
        doc="When brokers join, the controller adds replicas to `__consumer_offsets` and `__transaction_state` up to "
            "`offsets.topic.replication.factor` and `transaction.state.log.replication.factor`."),
    Key("landline.eligible.leader.replicas.enable", BOOLEAN, False, LOW, use=USED,
        doc="Who left an ISR smaller than `min.insync.replicas` may lead when nobody of that ISR lives (KIP-966): all "
            "that was committed is there. To be the same on all brokers, as `min.insync.replicas` is then; on a "
            "cluster with data it takes effect with the second rolling restart."),
    Key("landline.lifecycle.enable", BOOLEAN, False, LOW, use=USED,
        doc="Every step of this broker's start and stop is kept in landline-lifecycle.jsonl, in the first log "
            "directory, and published to the topic landline.lifecycle."),
)

# Written by kafka-reassign-partitions and kafka-configs; Kafka knows them only in /config/brokers.
DYNAMIC_ONLY: Final = (
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        use=USED, doc="Bytes per second for throttled replicas as leaders (KIP-73)."),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        use=USED, doc="Bytes per second for throttled replicas as followers (KIP-73)."),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, MEDIUM, valid=at_least(0),
        mode=CLUSTER_WIDE,
        doc="Bytes per second for moves between data directories. Kept; replicas are not moved yet."),
)
# fmt: on
