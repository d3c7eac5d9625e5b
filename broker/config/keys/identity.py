"""This broker's identity, and its connection to ZooKeeper."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, REFUSED, STRING, USED, Key
from broker.config.validators import VERSION, at_least

# fmt: off
KEYS: Final = (
    Key("broker.id", INT, -1, HIGH, use=USED,
        doc="This broker's id. -1 gets one from ZooKeeper, above reserved.broker.max.id."),
    Key("broker.id.generation.enable", BOOLEAN, True, MEDIUM, use=USED,
        doc="Whether a broker without broker.id gets one from ZooKeeper. If false, broker.id must be set."),
    Key("reserved.broker.max.id", INT, 1000, MEDIUM, valid=at_least(0), use=USED,
        doc="The largest value that broker.id may have; generated ids are larger."),
    Key("broker.rack", STRING, None, MEDIUM, use=USED,
        doc="The broker's location (a rack, a zone, a host). Replicas are spread over racks."),
    Key("zookeeper.connect", STRING, None, HIGH, use=USED,
        doc="ZooKeeper servers as `host:port,host:port/chroot`. Required by `landline start`."),
    Key("zookeeper.session.timeout.ms", INT, 18000, HIGH, use=USED,
        doc="How long ZooKeeper hears nothing from a broker before the broker counts as dead."),
    Key("zookeeper.connection.timeout.ms", INT, None, HIGH,
        doc="How long a broker tries to connect before it gives up. Landline keeps trying."),
    Key("zookeeper.max.in.flight.requests", INT, 10, HIGH, valid=at_least(1),
        doc="How many requests are sent to ZooKeeper before the first is answered."),
    Key("zookeeper.set.acl", BOOLEAN, False, HIGH, use=REFUSED,
        doc="Whether znodes are created with ACLs."),
    Key("zookeeper.clientCnxnSocket", STRING, None, MEDIUM,
        doc="Java class of ZooKeeper's client socket."),
    Key("zookeeper.ssl.client.enable", BOOLEAN, False, MEDIUM, use=REFUSED,
        doc="Whether the connection to ZooKeeper uses TLS."),
    Key("zookeeper.ssl.cipher.suites", LIST, None, LOW,
        doc="TLS to ZooKeeper: cipher suites."),
    Key("zookeeper.ssl.crl.enable", BOOLEAN, False, LOW,
        doc="TLS to ZooKeeper: check certificate revocation lists."),
    Key("zookeeper.ssl.enabled.protocols", LIST, None, LOW,
        doc="TLS to ZooKeeper: protocol versions offered."),
    Key("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", LOW,
        doc="TLS to ZooKeeper: how the host name is verified."),
    Key("zookeeper.ssl.keystore.location", STRING, None, MEDIUM,
        doc="TLS to ZooKeeper: key store file."),
    Key("zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM,
        doc="TLS to ZooKeeper: key store password."),
    Key("zookeeper.ssl.keystore.type", STRING, None, MEDIUM,
        doc="TLS to ZooKeeper: key store type."),
    Key("zookeeper.ssl.ocsp.enable", BOOLEAN, False, LOW,
        doc="TLS to ZooKeeper: check revocation by OCSP."),
    Key("zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW,
        doc="TLS to ZooKeeper: protocol version."),
    Key("zookeeper.ssl.truststore.location", STRING, None, MEDIUM,
        doc="TLS to ZooKeeper: trust store file."),
    Key("zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM,
        doc="TLS to ZooKeeper: trust store password."),
    Key("zookeeper.ssl.truststore.type", STRING, None, MEDIUM,
        doc="TLS to ZooKeeper: trust store type."),
    Key("zookeeper.metadata.migration.enable", BOOLEAN, False, HIGH, use=REFUSED,
        doc="Migration of the metadata from ZooKeeper to KRaft. Landline does not support it."),
    Key("zookeeper.metadata.migration.min.batch.size", INT, 200, MEDIUM, valid=at_least(1),
        doc="Batch size of the migration to KRaft."),
    Key("inter.broker.protocol.version", STRING, "3.9-IV0", MEDIUM, valid=VERSION, use=USED,
        doc="The version of the protocol between brokers. Landline uses 3.9's. Older versions are accepted "
            "down to 2.7 and do not change what is sent."),
)
# fmt: on
