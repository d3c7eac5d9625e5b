"""Landline's own keys, with the prefix `landline.`, and Kafka's keys that exist only as dynamic
broker configs.
"""

from __future__ import annotations

from typing import Final

from broker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    USED,
    Key,
)
from broker.config.validators import at_least, between, one_of

# fmt: off
KEYS: Final = (
    Key("landline.http.port", INT, 8092, MEDIUM, valid=between(-1, 65535), use=USED,
        doc="Port of the status page, /metrics, /livez, /readyz and /status; 0 takes a free port, -1 turns "
            "them off. If it is unset and 8092 is in use, a free port is taken and logged. A request's head "
            "may take 5 s and 16 KiB. At most 16 connections are open, 4 per address; a new one replaces the oldest "
            "idle one."),
    Key("landline.http.host", STRING, "", LOW, use=USED,
        doc="Address that the HTTP port is bound to; empty means every interface."),
    Key("landline.http.ssl.keystore.location", STRING, None, MEDIUM, use=USED,
        doc="Key store file of the HTTP port: the private key and its certificates, the broker's own first. "
            "If set, the port speaks TLS only, with ssl.enabled.protocols and ssl.cipher.suites. A changed "
            "file is used within 10 s for new connections, if it is good."),
    Key("landline.http.ssl.keystore.type", STRING, "PEM", LOW, valid=one_of("pem", "pkcs12", ignore_case=True),
        use=USED, doc="Key store type of the HTTP port: PEM or PKCS12."),
    Key("landline.http.ssl.keystore.password", PASSWORD, None, LOW, use=USED,
        doc="Key store password of the HTTP port, of a PKCS#12 file."),
    Key("landline.http.ssl.key.password", PASSWORD, None, LOW, use=USED,
        doc="Password of an encrypted private key in the HTTP port's PEM file."),
    Key("landline.http.token.file", STRING, None, MEDIUM, use=USED,
        doc="File of tokens, one on each line. If set, HTTP requests for /, /metrics and /status need one of "
            "them: `Authorization: Bearer TOKEN`, or TOKEN as a browser's password. A token has 16 to 512 "
            "letters, digits or `-._~+/=`. A changed file is used at once, if it is good. landline await-return "
            "sends the first one."),
    Key("landline.http.health.token.required", BOOLEAN, False, LOW, use=USED,
        doc="Whether /livez and /readyz need a token too. Load balancers often cannot send one."),
    Key("landline.log.dir.min.free.bytes", LONG, 1 << 30, MEDIUM, valid=at_least(0), use=USED,
        doc="With less free space than this, a log directory refuses clients' records but serves "
            "everything else. The limit is the smaller of this and landline.log.dir.min.free.percent; 0 "
            "turns it off."),
    Key("landline.log.dir.min.free.percent", INT, 5, MEDIUM, valid=between(0, 100), use=USED,
        doc="The same limit as a percentage of the file system, so that it also fits small disks; 0 turns "
            "it off."),
    Key("landline.deleted.segment.read.max.ms", LONG, 60_000, LOW, valid=at_least(1), use=USED,
        doc="How long a slow reader may take for an answer from a segment file that was deleted meanwhile "
            "(file.delete.delay.ms after retention removed the segment). Until then its disk space is not "
            "freed; afterwards the connection is closed. Kafka closes it when the file is deleted."),
    Key("landline.produce.validation", STRING, "first", MEDIUM, valid=one_of("first", "all", "none"), use=USED,
        doc="How thoroughly clients' record batches are checked before they are appended. `first`: the "
            "first record, and compressed batches are decompressed. `all`: every record, as Kafka does, "
            "at 1 to 2 µs each. `none`: the header is trusted. What each finds: replication.md. Batches "
            "for compacted topics, or for topics with their own codec or timestamp limits, are always "
            "checked completely."),
    Key("landline.producer.id.max.count", INT, 10_000, LOW, valid=at_least(1), use=USED,
        doc="Producer ids that a partition remembers, half a kilobyte each. Above it a tenth is forgotten, "
            "as after producer.id.expiration.ms. Among the half whose last write is the oldest, ids with a "
            "single batch go first, then the oldest."),
    Key("landline.producer.id.broker.max.count", INT, 200_000, LOW, valid=at_least(1), use=USED,
        doc="Producer ids that all partitions of this broker remember together, checked every 2 s. Above "
            "it the partitions with the most ids forget some, as for landline.producer.id.max.count, until "
            "nine tenths of it remain."),
    Key("landline.auto.create.topics.per.second", INT, 100, LOW, valid=at_least(1), use=USED,
        doc="Topics that auto.create.topics.enable creates per second, and for one request. Clients ask "
            "for the others again."),
    Key("landline.group.max.count", INT, 100_000, LOW, valid=at_least(1), use=USED,
        doc="Groups that this broker coordinates, 2 KB each plus their contents. A member or an offset "
            "that would create one more group is refused with GROUP_MAX_SIZE_REACHED."),
    Key("landline.group.member.max.bytes", INT, 1 << 20, LOW, valid=at_least(1), use=USED,
        doc="The largest total of names and protocol metadata that a member may send in "
            "JoinGroup. More is refused with INVALID_REQUEST. It is kept while the session lasts, "
            "up to group.max.session.timeout.ms."),
    Key("landline.group.max.bytes", LONG, 256 << 20, LOW, valid=at_least(1), use=USED,
        doc="Memory for groups, their members' metadata and assignments, and their committed offsets: "
            "enough for 100,000 groups with one offset each, or for 600,000 offsets of few groups. Above "
            "it these are refused: a new member, or one whose metadata grows and exceeds 4 KiB, with "
            "GROUP_MAX_SIZE_REACHED; an offset for a partition without one with "
            "INVALID_COMMIT_OFFSET_SIZE. Existing members stay and can commit. Loaded groups count, but "
            "are not refused."),
    Key("landline.group.pending.max.count", INT, 10_000, LOW, valid=at_least(1), use=USED,
        doc="Members of a group that got a member id but have not rejoined with it yet (KIP-394). The next "
            "one is refused with GROUP_MAX_SIZE_REACHED."),
    Key("landline.transaction.max.bytes", LONG, 256 << 20, LOW, valid=at_least(1), use=USED,
        doc="Memory for transactional ids and the partitions of their transactions: enough for 400,000 ids, or for "
            "200,000 open transactions of few partitions. Above it, new transactional ids "
            "and new partitions are refused with POLICY_VIOLATION; known ones can commit and abort. Loaded ones "
            "count, but are not refused."),
    Key("landline.consumer.lag.max.partitions", INT, 5_000, LOW, valid=at_least(0), use=USED,
        doc="Groups and committed offsets of which /metrics and the status page show the lag, together. Groups with "
            "members come first. landline_consumergroup_lag_left_out counts the others. 0 turns the lag off."),
    Key("landline.answer.max.bytes", INT, 64 << 20, LOW, valid=at_least(1), use=USED,
        doc="The largest answer to DescribeGroups, OffsetFetch, DescribeConfigs, ListGroups, "
            "DescribeTransactions, ListTransactions, or a leader's JoinGroup, where a small request can "
            "cause a large answer. Building it takes twice the memory. A group's row counts as 128 bytes "
            "plus its texts. What does not fit is refused: a "
            "group for which earlier ones left no room with COORDINATOR_LOAD_IN_PROGRESS, so that clients "
            "ask for it again; a leader with GROUP_MAX_SIZE_REACHED; otherwise with INVALID_REQUEST. "
            "librdkafka accepts no answer above 100 MB."),
    Key("landline.inter.broker.peers", STRING, "registered", MEDIUM, valid=one_of("any", "registered", "listener"),
        use=USED,
        doc="Which peers may send requests that only brokers send. `registered`: peers from this host "
            "and from the addresses of hosts in `/brokers/ids`. Once all brokers have several listeners "
            "and are registered as using `inter.broker.listener.name`, these requests must come through "
            "it. `listener`: the same peers, but always through `inter.broker.listener.name`. `any`: all "
            "peers, for brokers behind NAT or with other source addresses than they advertise. Others "
            "get CLUSTER_AUTHORIZATION_FAILED."),
    Key("landline.standalone", BOOLEAN, False, LOW, use=USED,
        doc="Keeps the metadata in this process instead of ZooKeeper. `landline standalone` sets it."),
    Key("landline.internal.topics.raise.replication.enable", BOOLEAN, True, LOW, use=USED,
        doc="When brokers join, the controller adds replicas to "
            "`__consumer_offsets` and `__transaction_state`, up to "
            "`offsets.topic.replication.factor` and "
            "`transaction.state.log.replication.factor`."),
    Key("landline.eligible.leader.replicas.enable", BOOLEAN, False, LOW, use=USED,
        doc="A replica that left an ISR smaller than `min.insync.replicas` may lead when no member of that "
            "ISR is alive (KIP-966), because it has all committed records. Must be the same on all "
            "brokers, and so must `min.insync.replicas`. On a cluster with data it takes effect with the "
            "second rolling restart."),
    Key("landline.lifecycle.enable", BOOLEAN, False, LOW, use=USED,
        doc="Records every step of this broker's start and stop in landline-lifecycle.jsonl, in the first "
            "log directory, and publishes it to the topic landline.lifecycle."),
)

# Set by kafka-reassign-partitions and kafka-configs. Kafka has them only in /config/brokers.
DYNAMIC_ONLY: Final = (
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        use=USED, doc="Bytes per second that this broker sends as leader of throttled replicas (KIP-73)."),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        use=USED,
        doc="Bytes per second that this broker fetches as follower of throttled replicas (KIP-73)."),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, MEDIUM, valid=at_least(0),
        mode=CLUSTER_WIDE, use=USED,
        doc="Bytes per second that moves between data directories write, all together (KIP-113)."),
)
# fmt: on
