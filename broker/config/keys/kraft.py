"""KRaft: Kafka's mode without ZooKeeper. Landline runs only in ZooKeeper mode, so keys that would enable
KRaft are refused.
"""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, HIGH, INT, LIST, LONG, LOW, MEDIUM, REFUSED, STRING, Key
from broker.config.validators import at_least, list_of

# fmt: off
KEYS: Final = (
    Key("process.roles", LIST, (), HIGH, valid=list_of("broker", "controller", empty=True), use=REFUSED,
        doc="The roles of a KRaft node."),
    Key("node.id", INT, -1, HIGH, use=REFUSED,
        doc="A KRaft node's id; set broker.id instead."),
    Key("controller.listener.names", STRING, None, HIGH, use=REFUSED,
        doc="Listeners of KRaft controllers."),
    Key("controller.quorum.voters", LIST, (), HIGH, use=REFUSED,
        doc="The KRaft quorum's members."),
    Key("controller.quorum.bootstrap.servers", LIST, (), HIGH, use=REFUSED,
        doc="Servers from which the KRaft quorum is discovered."),
    Key("metadata.log.dir", STRING, None, HIGH, use=REFUSED,
        doc="Directory of the KRaft metadata log."),
    Key("controller.quorum.append.linger.ms", INT, 25, MEDIUM,
        doc="KRaft quorum: how long writes are collected."),
    Key("controller.quorum.election.backoff.max.ms", INT, 1000, HIGH,
        doc="KRaft quorum: longest wait between elections."),
    Key("controller.quorum.election.timeout.ms", INT, 1000, HIGH,
        doc="KRaft quorum: wait before a new election."),
    Key("controller.quorum.fetch.timeout.ms", INT, 2000, HIGH,
        doc="KRaft quorum: silence before a new election."),
    Key("controller.quorum.request.timeout.ms", INT, 2000, MEDIUM,
        doc="KRaft quorum: request timeout."),
    Key("controller.quorum.retry.backoff.ms", INT, 20, LOW,
        doc="KRaft quorum: wait before a retry."),
    Key("broker.heartbeat.interval.ms", INT, 2000, MEDIUM,
        doc="KRaft: how often a broker reports to its controller."),
    Key("broker.session.timeout.ms", INT, 9000, MEDIUM,
        doc="KRaft: silence after which a broker counts as dead."),
    Key("initial.broker.registration.timeout.ms", INT, 60000, MEDIUM,
        doc="KRaft: how long the first registration may take."),
    Key("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, HIGH, valid=at_least(1),
        doc="KRaft metadata log: bytes between snapshots."),
    Key("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, HIGH, valid=at_least(0),
        doc="KRaft metadata log: time between snapshots."),
    Key("metadata.log.segment.bytes", INT, 1_073_741_824, HIGH, valid=at_least(12),
        doc="KRaft metadata log: segment size."),
    Key("metadata.log.segment.min.bytes", INT, 8_388_608, HIGH, valid=at_least(12),
        doc="KRaft metadata log: smallest segment size."),
    Key("metadata.log.segment.ms", LONG, 604_800_000, HIGH,
        doc="KRaft metadata log: segment age."),
    Key("metadata.max.idle.interval.ms", INT, 500, LOW, valid=at_least(0),
        doc="KRaft metadata log: time between no-op records."),
    Key("metadata.max.retention.bytes", LONG, 104_857_600, HIGH,
        doc="KRaft metadata log: size kept."),
    Key("metadata.max.retention.ms", LONG, 604_800_000, HIGH,
        doc="KRaft metadata log: time kept."),
    Key("sasl.mechanism.controller.protocol", STRING, "GSSAPI", HIGH,
        doc="SASL mechanism for connections to KRaft controllers."),
    Key("eligible.leader.replicas.enable", BOOLEAN, False, HIGH,
        doc="KRaft: eligible leader replicas (KIP-966)."),
    Key("unstable.api.versions.enable", BOOLEAN, False, HIGH,
        doc="Whether unfinished API versions are offered."),
    Key("unstable.feature.versions.enable", BOOLEAN, False, HIGH,
        doc="Whether unfinished feature versions are offered."),
)
# fmt: on
